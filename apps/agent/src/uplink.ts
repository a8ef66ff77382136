import type { Socket } from 'node:net';
import tls from 'node:tls';
import { connectTo, onceClosed, unlessGivenUp } from '@isthmus/runtime';
import {
  type AgentHello,
  connectPackets,
  connectSecurely,
  DEFAULT_TENANT,
  type HubMember,
  LinkRefused,
  LinkServer,
  type MembershipMessage,
  PacketServer,
  requestLink,
  throughProxy,
} from '@isthmus/transport';
import {
  type AgentTunnels,
  type Ask,
  type Dial,
  formatDestination,
  HUB_SERVER_NAME,
  type PlaneEvents,
  parseDestination,
} from '@isthmus/tunnel';
import type { AgentOptions } from './agent.ts';
import { AGENT } from './defaults.ts';
import { TenantPolicy } from './pipeline.ts';
import type { AgentToken } from './token.ts';

/** A server to connect to, by name or address. */
export interface ServerAddress {
  readonly address: string;
  readonly port: number;
  /** The configured name that has this address. Unset for an address that a hub reported. */
  readonly name?: string;
}

export interface UplinkOptions extends Pick<AgentOptions, 'tls' | 'proxy' | 'alpn' | 'keepaliveTime'> {
  readonly token: AgentToken;
  /** The configured servers' names or addresses. A server's certificate names the one that led to it, or `HUB_SERVER_NAME`. */
  readonly serverNames: readonly string[];
  /** Addresses without TLS whose last answer was gRPC. They are not asked for a link again, see `connectUplink`. */
  readonly packetServers: Set<string>;
  readonly hello: Omit<AgentHello, 'token'>;
  /** How long a server may take to admit the agent, in milliseconds. */
  readonly timeout: number;
  /** Gives up the attempt. Has no effect on an established connection. */
  readonly signal: AbortSignal;
  /** What answers the dials of a connection. @param rules what its hub says that callers may dial; unset where it can say nothing */
  readonly dial: (rules?: TenantPolicy) => Dial;
  /** Unset: tunnels end with the link. */
  readonly tunnels?: AgentTunnels;
  readonly events: PlaneEvents;
  /** Answers a hub's questions for operators. */
  readonly answer?: Ask | undefined;
  /** Called with what the hub reports about its plane. */
  readonly membership: (message: MembershipMessage) => void;
  /** Called once when the server is leaving: the agent needs another in its place. */
  readonly leave: () => void;
}

/** What a connection to a server needs. */
export type ConnectOptions = Pick<UplinkOptions, 'tls' | 'proxy' | 'alpn' | 'serverNames' | 'timeout' | 'signal'>;

/** An agent's live connection to one server: a hub of ours, or ANP's proxy-server. */
export interface Uplink {
  readonly server: ServerAddress;
  readonly serverId: string;
  readonly protocol: 'link' | 'packets';
  /** Names the plane behind the server. Empty if the server stands alone. */
  readonly plane: string;
  readonly serverCount: number;
  /** The seconds between PINGs at rest, which grow with the links of a hub: how large the herd is that loses it. */
  readonly restSeconds: number;
  /** Dials and tunnels. */
  readonly open: number;
  /** Whether the server is leaving, or the agent is leaving it: another one has or should have replaced it, and its tunnels still run. */
  readonly leaving: boolean;
  readonly closed: Promise<Error | undefined>;
  /** Asks the server to dial elsewhere while it can. */
  drain(): void;
  /** Leaves a hub that another one has replaced: drains, and ends when its tunnels have. */
  leave(): void;
  destroy(reason: Error): void;
}

/**
 * Connects to a server and finds out which protocol it speaks: with TLS, by its choice of ALPN; otherwise, by whether it answers our
 * Upgrade request in HTTP/1.1.
 *
 * Without TLS, gRPC needs another connection after the one that asked. A load balancer that deals out connections in turn between two
 * servers would then always give the second one to the same server. So the agent remembers which protocol an address speaks until a
 * connection to it fails or is lost.
 */
export async function connectUplink(server: ServerAddress, options: UplinkOptions): Promise<Uplink> {
  const at = formatDestination({ host: server.address, port: server.port });
  const late = performance.now() + options.timeout;
  const inTime = () => ({ ...options, timeout: Math.ceil(Math.max(1, late - performance.now())) });
  const packets = async () => {
    const uplink = await begin(server, await connectServer(server, inTime()), packetUplink, inTime());
    options.packetServers.add(at);
    return uplink;
  };
  if (options.packetServers.delete(at)) return packets();
  const socket = await connectServer(server, options);
  if (socket instanceof tls.TLSSocket && socket.alpnProtocol === 'h2')
    return begin(server, socket, packetUplink, inTime());
  try {
    return await begin(server, socket, linkUplink, inTime());
  } catch (error) {
    // Over TLS, both sides agreed on HTTP/1.1. Without TLS, a gRPC server answers an Upgrade with frames of HTTP/2, or hangs up.
    if (options.signal.aborted || options.tls || error instanceof LinkRefused || performance.now() >= late) throw error;
    return packets();
  }
}

async function begin(
  server: ServerAddress,
  socket: Socket,
  uplink: (server: ServerAddress, socket: Socket, options: UplinkOptions) => Promise<Uplink>,
  options: UplinkOptions,
): Promise<Uplink> {
  try {
    return await uplink(server, socket, options);
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

/** Connects, by TLS where the agent uses it. Rejects with what failed. */
export function connectServer(server: ServerAddress, options: ConnectOptions): Promise<Socket> {
  const { address: host, port } = server;
  const { tls: settings, alpn, timeout, signal } = options;
  const names = namesOf(server, options);
  // By the configured name, if there is one: that is what NO_PROXY names, as with Go.
  const proxy = options.proxy?.({ host: server.name ?? host, port });
  const connect: typeof connectTo = proxy ? (to, limits) => throughProxy(proxy, to, limits) : connectTo;
  if (!settings) return connect({ host, port }, { timeout, signal });
  return connectSecurely(
    { host, port },
    {
      ...{ tls: settings, servername: names[0], timeout, signal, connect },
      // Ours first. ANP's servers know only the second.
      ALPNProtocols: ['http/1.1', 'h2', ...alpn],
      // Not the dialled address: it comes from a hub's registry or from DNS, and its owner may have a certificate too.
      names: [...names, HUB_SERVER_NAME],
    },
  );
}

/** The names that its certificate may have. A hub that others reported belongs to any of the configured servers. */
export function namesOf(
  { address, name }: ServerAddress,
  { serverNames }: Pick<UplinkOptions, 'serverNames'>,
): readonly [string, ...string[]] {
  const [first = address, ...others] = name === undefined ? serverNames : [name];
  return [first, ...others];
}

async function linkUplink(server: ServerAddress, socket: Socket, options: UplinkOptions): Promise<Uplink> {
  const { events, membership, timeout, signal } = options;
  const names = namesOf(server, options);
  const token = options.token.current;
  const hello = { ...options.hello, ...(token !== undefined && { token }) };
  const answer = requestLink(socket, names[0], hello, timeout);
  const { hubId, plane, serverCount, tenant, ...offers } = await unlessGivenUp(socket, () => answer, { signal });
  // Without TLS nothing proves who answers, so only the configured host gets a token.
  const mayRoam = token === undefined || options.tls !== undefined;
  let leaving = false;
  const { policy: announced = false, renewal: renews, ping } = offers;
  const peer = `hub ${hubId}`;
  const policy = new TenantPolicy({
    announced,
    missing: (error) => link.destroy(error),
    refused: (error) => events.emit('refused', 'agent link', peer, error),
  });
  onceClosed(socket, () => policy[Symbol.dispose]());
  const link = new LinkServer({
    socket,
    tenant,
    peer,
    role: 'agent',
    ...(options.tunnels && { tunnels: options.tunnels }),
    ping,
    dial: options.dial(policy),
    answer: options.answer,
    events,
    receive(message) {
      if (message.type === 'membership' || message.type === 'membership-change')
        membership(mayRoam ? message : withoutOtherHosts(names, message));
      else if (message.type === 'policy') policy.take(message);
      else if (message.type === 'renewed') renewed?.();
    },
    goaway: () => {
      if (leaving) return;
      leaving = true;
      options.leave();
    },
  });
  const renewed = renews ? options.token.follow(link, token) : undefined;
  return {
    server,
    plane,
    serverCount,
    serverId: hubId,
    restSeconds: ping?.atRest ? ping.seconds : 1,
    protocol: 'link' as const,
    closed: link.closed,
    get open() {
      return link.open;
    },
    get leaving() {
      return leaving;
    },
    drain: () => link.drain(),
    leave() {
      leaving = true;
      link.drain();
      const timer = setTimeout(() => link.close(), AGENT.drainSettleMs);
      void link.closed.then(() => clearTimeout(timer));
    },
    destroy: (reason) => link.destroy(reason),
  };
}

/** Returns a hub's report without the addresses of other hosts: agents reach those hubs only through the configured server. */
function withoutOtherHosts(hosts: readonly string[], message: MembershipMessage): MembershipMessage {
  const stripped = (hub: HubMember): HubMember =>
    hub.address !== '' && !hosts.includes(parseDestination(hub.address).host) ? { ...hub, address: '' } : hub;
  return message.type === 'membership'
    ? { ...message, hubs: message.hubs.map(stripped) }
    : { ...message, changed: message.changed.map(stripped) };
}

async function packetUplink(server: ServerAddress, socket: Socket, options: UplinkOptions): Promise<Uplink> {
  const { events, timeout, signal, keepaliveTime: keepaliveMs } = options;
  const { agentId, identifiers, tenant = DEFAULT_TENANT } = options.hello;
  const token = options.token.current;
  const { serverId, serverCount, channel } = await connectPackets(socket, {
    target: formatDestination({ host: namesOf(server, options)[0], port: server.port }),
    agentId,
    identifiers,
    keepaliveMs,
    timeout,
    signal,
    ...(token !== undefined && { token }),
  });
  const served = new PacketServer(channel, { dial: options.dial(), tenant, events });
  return {
    server,
    serverId,
    serverCount,
    restSeconds: 1,
    protocol: 'packets' as const,
    plane: '',
    leaving: false,
    closed: served.closed,
    get open() {
      return served.open;
    },
    drain: () => served.drain(),
    // ANP's servers share no plane, so each of them is needed.
    leave() {},
    destroy: (reason) => served.destroy(reason),
  };
}
