/**
 * Times and counts of an agent, most of them about how it keeps its sessions: times in milliseconds. Flags set the rest: `--sync-interval` and its
 * cap bound the pauses of an address, and all agents move to better hubs within `--rebalance-time`.
 */
export const AGENT = {
  /** How often to look for what no event reports, such as the end of the last tunnel of a session that should move. */
  lookEveryMs: 1000,
  /**
   * Agents that hear of the same new server connect at random times within this. Those that lost the same one do so within this times the
   * seconds of its PINGs at rest (1 to 10, by its links: `TRANSPORT.linksPerPingStep`), or within what their last attempt to connect took if
   * that is longer: hubs do some 125 handshakes a second, and those that are starved fewer.
   */
  herdSpreadMs: 2000,
  /** Attempts to connect at a time. Without a session they begin after 0, 1, 3 and 7 s, before the first is given up after 10 s. */
  maxAttempts: 4,
  /**
   * An attempt to connect that takes longer does not delay the next one. Doubles with each further pending attempt: a server that is slow because
   * thousands connect at once would become slower still, and never recover.
   */
  youngAttemptMs: 1000,
  /**
   * The same for an agent that still has a session. Measured with 2,000 agents that lost a session at the same moment: with a second attempt after
   * a second, all hubs together did only handshakes that their agents had abandoned by the time they were done.
   */
  patientAttemptMs: 15_000,
  /**
   * How long an attempt to connect may take for an agent without a session. Doubles after each attempt that took too long, up to `calmTimeoutMs`:
   * otherwise, hubs whose handshakes take longer than agents wait would never finish one.
   */
  urgentTimeoutMs: 10_000,
  /** How long an attempt to connect may take for an agent that has a session. */
  calmTimeoutMs: 40_000,
  /** How much earlier than its clock a timer may fire. */
  timerEarlyMs: 50,
  /** How long a server's name may take to resolve. The resolver itself may take minutes when its servers are silent. */
  lookupTimeoutMs: 5000,
  /** After this many failures to connect in a row, the next address has to wait too, for `failureGapMs`: a list may be long. */
  freeFailures: 8,
  /** How long the next address has to wait after more failures in a row than `freeFailures`. */
  failureGapMs: 250,
  /**
   * The longest pause of an address after a failure of an agent without a session; with one, or after a session that broke soon, that is
   * `--sync-interval`. It doubles with each. A load balancer may lead elsewhere, and a server that starts together with its agent is found at once.
   */
  firstPauseMs: 50,
  /** The longest pause of an agent without a session while nobody listens: a static pod of one server is away for 10 s, and callers wait for its agents. */
  refusedCapMs: 2000,
  /** A session that lasted this long shows that its server is well. */
  stableMs: 10_000,
  /** The agent waits before it reconnects to a server that ends sessions sooner than this. */
  briefMs: 1000,
  /**
   * The longest pause within a plane after an address led to another server than the one that is sought. A balancer may lead anywhere, so a few
   * tries find each of its hubs; what is never found costs no more than this. Outside a plane, that is `--sync-interval-cap`: no hub tells of others.
   */
  missedCapMs: 60_000,
  /** How much longer a session with tunnels stays than an idle one when better hubs are there, as a part of `--rebalance-time`. */
  busyPart: 2 / 3,
  /** How many hubs of one link and how many addresses are remembered. The oldest address is forgotten first; further hubs are ignored. */
  maxKnown: 1024,
  /** How long the last failed attempt is something to fix, while a server is missing. */
  failureNoticeMs: 300_000,
  /**
   * How long a client of the API server waits for a hub, also one whose link is lost, before its connection is reset. Clients of Kubernetes ask
   * again at once after a reset, and only after 45 s of silence.
   */
  apiServerWaitMs: 10_000,
  /** Open connections to the API server from one source: a pod's, or a node's own. A tenant has 50,000 at each process that connects for it. */
  apiServerClientsOfSource: 10_000,
  /** How long clients of one source are refused after a connection of it came back to this agent. In such a loop, each makes the next one in 2 ms. */
  apiServerLedBackMs: 1000,
  /** Clients of the API server that wait for a hub at once, half of them from one source. Further ones are reset. */
  apiServerWaiting: 2000,
  /** How long a hub may take to reach the API server, while others could be asked. */
  apiServerTryMs: 3000,
  /** How long others are asked before a hub that did not reach it. */
  apiServerAvoidMs: 10_000,
  /** How long a hub may take to accept a link for clients of the API server. */
  apiServerLinkMs: 10_000,
  /**
   * The longest pause before such a link is opened again after a refusal. Each attempt costs its hub a handshake, of which it does some 125 a
   * second, and all agents of a tenant may be refused alike.
   */
  apiServerLinkRefusedMostMs: 30_000,
  /** How long the list of the machine's addresses is believed, where a client of the API server comes from. */
  ownAddressesMs: 1000,
  /** How often an agent that drains looks whether another process takes the clients of the API server. */
  apiServerTakenLookMs: 100,
  /** The same, in multiples of what a look took: 20 to 100 ms with 16,000 sockets on the node. */
  apiServerTakenLookTimes: 20,
  /** How long dials that were already on their way may still arrive after a drain. */
  drainSettleMs: 1000,
  /** How often a drain looks whether tunnels are left. */
  drainLookMs: 50,
  /** How long an agent waits for the dial rules that a hub announced; then it ends the link. They are on their way when it begins to wait. */
  rulesMs: 10_000,
  /** The longest token that replaces another one, in characters, as hubs take it. Kubernetes' have about 1,000. */
  tokenCharacters: 16 * 1024,
  /** How often to look whether the token was rotated. The kubelet does so when a fifth of its life is left. */
  tokenLookMs: 2000,
  /**
   * Without an answer, a token is sent again after a random time from this to `tokenAgainMostMs`: the hub could not ask the API server, perhaps, or a
   * herd has used up the tenant's `limits.renewalsPerSecond`, and would come back as one. A hub takes none for 20 s after a refusal.
   */
  tokenAgainLeastMs: 22_000,
  /** The longest time after which a token without an answer is sent again. */
  tokenAgainMostMs: 45_000,
};
