import { bufferSizes, poolBytes } from '@isthmus/runtime';

/** Times, sizes and counts of transport: times in milliseconds unless their name says otherwise, sizes in bytes. */
export const TRANSPORT = {
  /** How long a peer may take to send its first bytes; by default, also for its TLS handshake before that. */
  firstBytesMs: 10_000,
  /** How much of a ClientHello is read to find the name of an API server: TLS 1.3 with a post-quantum key share takes 1.8 KB. */
  helloBytes: 16 * 1024,
  /** How long a ClientHello may take to arrive whole until the port's own TLS goes on with it. */
  helloMs: 5000,
  /** How long a connection to an API server may take, over all its addresses. Without an answer, clients see a reset. */
  apiServerConnectMs: 10_000,
  /** How soon the name of an API server's address is resolved again, if somebody connects, or it could not be resolved. */
  apiServerNameMs: 10_000,
  /** How often an address that refused, or stayed silent, is tried apart from clients, until it answers. */
  apiServerProbeMs: 2000,
  /** How long such a try may take. */
  apiServerProbeConnectMs: 5000,
  /** How long a gateway, or the hub itself, may take to reach an API server for a hub's client, while others could be asked. */
  apiServerTryMs: 2000,
  /** How many gateways are asked for one client. Each costs an API server that is down one more attempt, and its tenant one of its rate there. */
  apiServerGateways: 2,
  /** How long others are asked before a gateway that did not reach it. */
  apiServerAvoidMs: 10_000,
  /** How long a connection to an API server is kept after the link that carried it was lost: longer than the agent keeps its client's. */
  apiServerAgentBackMs: 15_000,
  /** What all these connections may keep for agents that acknowledge late, beyond what each always may. */
  apiServerKeptBytes: poolBytes(64 * 1024 * 1024),
  /**
   * Handshakes in progress at one port. Callers that dial have at most 2,000 pending dials of a tenant, so only an attack reaches this limit and
   * the next one.
   */
  handshakes: 4096,
  /** The same from one source address. */
  handshakesOfSource: 2048,
  /** How long a connection may wait to be admitted, unless the port says otherwise. */
  handshakeMs: 30_000,
  /** How long a peer that was refused in its handshake may take to ask over HTTP/1.1 before it is told anyway. */
  refusedPeerAsksMs: 250,
  /**
   * How long a refused peer may take to ask, to read the reason and to close: a busy one too, which would otherwise see only a reset. Until then it
   * counts as one that waits to be admitted.
   */
  refusedPeerMs: 5000,
  /** The longest reason of a peer that is shown, in characters. A certificate's names are shorter. */
  shownReasonCharacters: 1000,
  /** The longest part of a proxy's answer that is shown, in characters. */
  shownAnswerCharacters: 100,
  /** The longest head of an HTTP/1.1 answer that is read. A longer one of a request needs a place among `longHeads`. */
  headBytes: 16 * 1024,
  /** The longest head of a request: tokens of issuers, and what tools add. */
  requestHeadBytes: 32 * 1024,
  /** Requests whose head is longer than `headBytes` and has not arrived whole, at once: 16 MiB. Further ones are refused. */
  longHeads: 256,
  /** How long the head of a request may take to come whole. */
  requestHeadMs: 10_000,
  /** After so many refused requests at once, a connection accepts no more: that of a known caller too. */
  challenges: 3,
  /** A connection may have one more of them after this time. */
  challengeMs: 20_000,
  /** Initial window of a gRPC caller's tunnel: what it holds if its destination does not read. It grows if the destination reads. */
  callerWindowBytes: bufferSizes.window,
  /** How long the header fields of a caller's gRPC request may be: as much as a CONNECT's head, and the 32 bytes that each of 32 fields costs. */
  callerFieldsBytes: 33 * 1024,
  /** Window of a gRPC stream until its caller has proven a tenant, where tenants are configured. It has room for a dial. */
  unprovenWindowBytes: 4 * 1024,
  /** Streams of a gRPC connection until its caller has proven a tenant, where tenants are configured. */
  unprovenStreams: 1,
  /**
   * Silent gRPC callers are pinged after at most this time, even if `--frontend-keepalive-time` allows longer. Node does not always notice that a
   * TLS connection was reset while it wrote to it, and the caller's tunnel would stay open for the flag's hour.
   */
  callerKeepaliveMs: 60_000,
  /** How long the last accepted callers may take in a drain for their dial and answer, once none is in its handshake. */
  callerAnswerMs: 1000,
  /** How long those may take for their handshake. */
  callerHandshakeMs: 3000,
  /** How long a gateway that drains keeps the links of `isthmus hold`, which goes on through another gateway meanwhile if there is one. */
  holdMovesMs: 2000,
  /** How soon it is known that a caller which has ended on a unix socket has closed it for good, if its destination has not ended too. */
  closedMs: 250,
  /** How much a caller may send before the answer to its CONNECT is there. The rest waits in the kernel. */
  earlyBytes: 64 * 1024,
  /**
   * How long a gRPC caller may take between opening a stream and dialling. An API server does both at once. A stream without a dial would stay as
   * long as its connection.
   */
  firstDialMs: 30_000,
  /**
   * How long a gRPC connection that arrives while the server drains waits for its GOAWAY. Go's clients answer a GOAWAY by connecting again, at once
   * and as often as it takes. Behind a load balancer they soon find another server; on a socket that only this server has, they would spin.
   */
  turnedAwayAfterMs: 100,
  /** How long the header fields of a gRPC request may be, if the port sets nothing else. */
  grpcFieldsBytes: 64 * 1024,
  /** Answers (to PING, SETTINGS, refused streams) that may wait for a gRPC peer that does not read them. */
  grpcBacklogBytes: 1024 * 1024,
  /** The same until the peer has proven who it is. Nothing but such answers can wait for it. */
  grpcWaitingBacklogBytes: 16 * 1024,
  /** How much the windows of all gRPC callers together may grow. They have a budget of their own, so that they cannot shrink the links' windows. */
  grpcGrowthBytes: poolBytes(128 * 1024 * 1024),
  /** The largest window of a gRPC stream. Callers are near, and longer queues survive a minor garbage collection. */
  grpcWindowBytes: 1024 * 1024,
  /** Streams that a gRPC peer may reset in a short time before its connection ends. */
  grpcResets: 300,
  /** Streams of a gRPC connection. Callers use one per connection. This allows for peers that carry many tunnels on one connection. */
  grpcStreams: 10_000,
  /**
   * What an ANP server may send ahead on the stream that carries all tunnels, for good. While a destination reads slowly, all of it
   * waits in front of the other tunnels' bytes: at 1 MiB/s, a ping beside it took 10.7 s with 16 MiB, and 1.5 s with upstream's agent.
   */
  packetsStreamWindowBytes: 1024 * 1024,
  /**
   * How much of an ANP server's stream an agent holds for slow destinations, beyond their tunnels' shares, before the server's window shrinks. A
   * destination that rests for longer than its patience keeps its tunnel until then.
   */
  packetsHeldBytes: 16 * 1024 * 1024,
  /** With more waiting packets than this in a channel, what may be dropped is dropped. */
  packetsOffered: 1024,
  /** With more waiting packets than this, the peer does not read, and the channel is ended. */
  packetsPosted: 65_536,
  /** How many closed connections, and abandoned dials, of a packet channel are remembered, so that what comes late for them is not answered. */
  packetsRemembered: 4096,
  /** How much may wait for one tunnel of packets before its bytes count against the window that all tunnels of its stream share. */
  packetsTunnelShareBytes: 4 * 1024 * 1024,
  /** How much may wait like this in the whole process. */
  packetsBudgetBytes: poolBytes(128 * 1024 * 1024),
  /** A tunnel's share is at most the rest of the budget divided by this, so many slow readers make each other's share small. */
  packetsBudgetParts: 8,
  /**
   * How long a reader of a tunnel of packets may take nothing while nobody on its stream can send. As long as konnectivity-client gives its own
   * reader. Kernels report a slow reader's progress in steps, on a unix socket of some 160 KiB: a reader that takes 16 KiB a second still counts as
   * moving.
   */
  packetsPatienceMs: 10_000,
  /**
   * The same after the channel has ended. Everything that was sent has arrived, so such a reader blocks nobody. As long as a half-closed tunnel may
   * be silent.
   */
  packetsPatienceWhenOverMs: 300_000,
  /** How often a reader of a tunnel of packets is checked within its patience. */
  packetsReaderChecks: 10,
  /** konnectivity-client waits this long for a close and then cuts the connection. So does an agent. */
  packetsCloseMs: 10_000,
  /**
   * The most that an agent puts into one DATA packet. A Go server queues packets by number, whatever their size, ahead of every other tunnel's. Beside
   * a download at 1 MiB/s, a ping took 2 s with 64 KiB and 1 s with this size; with 4 KiB, which Go's agents send, it took as long.
   */
  packetsAgentDataBytes: 16 * 1024,
  /** The most data in one DATA packet of other senders. A Go peer accepts 4 MiB, but larger packets only make the other tunnels wait longer. */
  packetsDataBytes: 64 * 1024,
  /** How much a reader of a tunnel of packets may leave unread before further data counts as waiting. */
  packetsReadAheadBytes: bufferSizes.stream,
  /** How long a dial of an ANP server may take at an agent. */
  packetsDialMs: 30_000,
  /** Dials and tunnels at the same time on a packet channel that carries many. */
  packetsTunnels: 10_000,
  /** How long a gateway's first link to a hub may take to come up: a gateway that starts waits for it. */
  peerConnectMs: 3000,
  /** How long each further one may take. TCP and TLS take two round trips, which may be 2 s each, and what is lost is sent again. */
  peerReconnectMs: 10_000,
  /** The first pause before a link that was lost is opened again. Each further failure doubles it. */
  linkAgainMs: 50,
  /** A link that lasted this long shows that its peer is well: it is opened again at once, and the next pause is the first. */
  linkProvenMs: 500,
  /** The longest such pause of a link to a hub. */
  hubLinkAgainMostMs: 2000,
  /** How long an agent tries to reach a destination. Upstream's agents answer after 5 s. */
  destinationConnectMs: 5000,
  /**
   * An agent acknowledges a dial whose connection takes longer than this. This is well before a gateway would try another agent as well. Most
   * connections are made by then, and their answer is acknowledgement enough.
   */
  acknowledgeAfterMs: 50,
  /**
   * How long a peer has to get what was written before its connection is reset. A reset discards what it has not got, and the runtime does not say
   * how much that is.
   */
  deliveryMs: 500,
  /** The most parts of a field of a dial's or an attach's head that are read. They have six. */
  fieldParts: 32,
  /** The longest dial over a link. Timers overflow above 2^31 - 1 ms and fire immediately. */
  longestDialMs: 3_600_000,
  /** The longest round-trip time to its agent that a hub may claim. */
  longestRoundTripMs: 5000,
  /** A hub tells a gateway its round trip to the agent if it is longer. A gateway's patience covers a shorter one. */
  longRoundTripMs: 50,
  /**
   * What a link says of its round-trip time before the first PING is answered. Right after an outage, dials that waited for a session are the first
   * on its link.
   */
  unknownRoundTripMs: 1000,
  /** The longest token that an agent may send over its link, in characters: as many as the head of a link's request has room for. */
  tokenCharacters: 16 * 1024,
  /** How often a hub renews the list of hubs at its agents. */
  membershipBeatMs: 20_000,
  /** How long an agent believes the list of hubs without a renewal. Two beats may be late, at agents of earlier versions half of one. */
  membershipTtlMs: 3 * 20_000,
  /** Hubs in one message to an agent. A longer list continues in changes, so that no line exceeds what the other side reads. */
  hubsInMessage: 128,
  /** Rules in a list of dial rules, and ports or callers of a rule: as many as a tenant's file may have. */
  ruleEntries: 1000,
  /** The longest control message, one line of JSON, from an agent, a gateway or `isthmus hold`: a token. The dearest takes 2 ms to read, of 256 KiB .2 s. */
  controlLineBytes: 32 * 1024,
  /** The same from a hub to its agent, which trusts it: dial rules. */
  hubLineBytes: 256 * 1024,
  /**
   * How many control messages a link accepts at once. A message takes about 20 microseconds, so a burst takes 20 ms. Hubs send changes at most ten
   * times a second, even if thousands of hubs restart.
   */
  controlMessagesAtOnce: 1000,
  /** How many control messages a link accepts per second after a burst: they take two thousandths of a processor. */
  controlMessagesPerSecond: 100,
  /** Each of these many bytes makes a control message cost as much as one more. */
  controlBytesAMessage: 2 * 1024,
  /**
   * What the links of one tenant's agents at a hub, of its `isthmus hold` at a gateway, or of gateways with one certificate at a hub may say at
   * once, in control messages. Beyond it, each link is read more slowly, and nothing is lost. All agents of a large tenant that renew their tokens
   * within a minute stay below it.
   */
  senderMessagesAtOnce: 4000,
  /** The same per second after a burst: they take a hundredth of a processor. */
  senderMessagesPerSecond: 400,
  /** How long a link whose sender has said too much is not read. Then it may say one thing: one that says little is not late. In milliseconds. */
  controlRestMs: 1000,
  /** Senders whose control messages are counted, the last that said something, and tenants that are read in turns, the last that connected. */
  controlSenders: 10_000,
  /** Questions of operators that each side of a link may have open. */
  asks: 512,
  /** The longest answer of a member to an operator's question, in bytes of JSON: a list of 30,000 sessions. */
  memberAnswerBytes: 16 * 1024 * 1024,
  /** The same of an agent, whose hub does not trust it: 64 KiB of nested JSON take 25 ms. */
  agentAnswerBytes: 64 * 1024,
  /** After how long a gateway opens its stream of questions to a hub again, which one of the sides broke. */
  asksAgainMs: 1000,
  /** Answers to one question that wait to be read. A longer queue ends the question. */
  answersUnread: 1000,
  /** Links of `isthmus hold` of one tenant at a gateway: one of each of its API servers. */
  holdLinksOfTenant: 64,
  /** Tunnels that `isthmus hold` tells a gateway of which operators ask. */
  heldTunnels: 1000,
  /** Tunnels in each of its answers. */
  heldAtOnce: 50,
  /** How long it may take to answer, and for how long its answer counts. */
  heldMs: 500,
  /** The longest reason in a control message. */
  reasonCharacters: 300,
  /** How many bytes of control messages may wait for a peer that does not read. Beyond that, the link is useless and ends. */
  controlBacklogBytes: 4 * 1024 * 1024,
  /** So many links to agents have the same interval of PINGs. The next ones have a second more. */
  linksPerPingStep: 100,
  /** The longest interval of PINGs that a hub chooses for its links at rest, in seconds. An agent on a short path then notices within 25 s that its hub hangs. */
  longestAtRestSeconds: 10,
  /** The longest silence that an agent may ask for, in seconds (`--ping-interval`). A hub notices only after such a silence that the agent is gone. */
  longestPingSeconds: 300,
  /** When an agent that was refused for now may try again, in seconds. */
  retryAfterSeconds: 5,
};
