import { once } from 'node:events';
import net, { isIP, type Socket } from 'node:net';
import tls from 'node:tls';
import { secureContext, type TlsSettings } from '@isthmus/runtime';
import {
  type AgentHello,
  connectPackets,
  type HubMember,
  LinkRefused,
  LinkServer,
  type MembershipMessage,
  requestLink,
  secureConnect,
  servePackets,
} from '@isthmus/transport';
import { type Dial, formatDestination, HUB_SERVER_NAME, type PlaneEvents, parseDestination } from '@isthmus/tunnel';

/** After a drain, how long dials that were already on their way may still come, in milliseconds. */
export const DRAIN_SETTLE = 1000;

/** A server to connect to, by name or address. */
export interface ServerAddress {
  readonly address: string;
  readonly port: number;
}

export interface UplinkOptions {
  /** The configured server's name or address. Every server's certificate names this, or `HUB_SERVER_NAME`. */
  readonly serverName: string;
  /** Unset: no TLS. */
  readonly tls?: TlsSettings;
  /** Further ALPN names to offer, for balancers that route by them. */
  readonly alpn: readonly string[];
  /** Addresses whose last answer was gRPC. They are not asked again, see `connectUplink`. */
  readonly packetServers: Set<string>;
  readonly hello: Omit<AgentHello, 'token'>;
  /** Read anew for each connection, since tokens are renewed in place. */
  readonly token: () => string | undefined;
  /** gRPC keepalive towards ANP's servers, in milliseconds. */
  readonly keepaliveTime: number;
  /** How long a server may take until it has let the agent in, in milliseconds. */
  readonly timeout: number;
  /** Gives up the attempt; without effect on a connection that stands. */
  readonly signal: AbortSignal;
  readonly dial: Dial;
  readonly events: PlaneEvents;
  /** What the hub says of its plane. */
  readonly membership: (message: MembershipMessage) => void;
  /** The server goes away: another is wanted in its place. */
  readonly leave: () => void;
}

/** An agent's live connection to one server: a hub of ours, or ANP's proxy-server. */
export interface Uplink {
  readonly server: ServerAddress;
  readonly serverId: string;
  readonly protocol: 'link' | 'packets';
  /** Names the plane behind the server; empty for a server that stands alone. */
  readonly plane: string;
  readonly serverCount: number;
  /** Dials and tunnels. */
  readonly open: number;
  /** The server goes away, or the agent from it: another is there in its place or should be, and its tunnels still run. */
  readonly leaving: boolean;
  readonly closed: Promise<Error | undefined>;
  /** Asks the server to dial elsewhere while it can. */
  drain(): void;
  /** Goes away from a hub to which there is another by now: drains, and ends when its tunnels have. */
  retire(): void;
  destroy(reason: Error): void;
}

/**
 * Connects to a server and learns which protocol it speaks: with TLS its choice of ALPN says it, else whether it answers our
 * Upgrade request in HTTP/1.1.
 *
 * gRPC needs a connection of its own after the one that asked. A balancer that deals connections out in turn between two
 * servers would give every second one to the same server for ever, so what an address speaks is remembered until a
 * connection to it fails or is lost.
 */
export async function connectUplink(server: ServerAddress, options: UplinkOptions): Promise<Uplink> {
  const at = formatDestination({ host: server.address, port: server.port });
  if (options.packetServers.delete(at)) return packetUplink(server, options);
  const late = performance.now() + options.timeout;
  const left = () => Math.ceil(Math.max(1, late - performance.now()));
  const socket = await connect(server, options);
  if (socket instanceof tls.TLSSocket && socket.alpnProtocol === 'h2') {
    socket.destroy();
    return packetUplink(server, { ...options, timeout: left() });
  }
  try {
    return await linkUplink(server, socket, { ...options, timeout: left() });
  } catch (error) {
    socket.destroy();
    // Over TLS, HTTP/1.1 was agreed on. Without TLS, a gRPC server answers an Upgrade with frames of HTTP/2, or hangs up.
    if (options.signal.aborted || options.tls || error instanceof LinkRefused || performance.now() >= late) throw error;
    return packetUplink(server, { ...options, timeout: left() });
  }
}

async function connect(server: ServerAddress, options: UplinkOptions): Promise<Socket> {
  const { address, port } = server;
  const { tls: settings, alpn, serverName, timeout, signal } = options;
  const { socket, done } = settings
    ? secureConnect(
        {
          host: address,
          port,
          secureContext: secureContext(settings),
          ...(isIP(serverName) === 0 && { servername: serverName }),
          // Ours first; ANP's servers know only the second.
          ALPNProtocols: ['http/1.1', 'h2', ...alpn],
        },
        // Not the address that is dialled: a hub's registry told it, or DNS did, and its holder may have a certificate too.
        { host: serverName, orName: HUB_SERVER_NAME },
      )
    : connected(net.connect({ host: address, port }));
  socket.setNoDelay(true);
  const late = () => socket.destroy(new Error(`no connection to ${address}:${port} within ${timeout / 1000} s`));
  const timer = setTimeout(late, timeout);
  try {
    await unlessGivenUp(socket, signal, done);
  } finally {
    clearTimeout(timer);
  }
  socket.on('error', () => {});
  return socket;
}

function connected(socket: Socket) {
  return { socket, done: once(socket, 'connect') };
}

/** Waits for what happens on a socket, which ends when the attempt is given up. */
async function unlessGivenUp<T>(socket: Socket, signal: AbortSignal, step: Promise<T>): Promise<T> {
  const abandon = () => socket.destroy(new Error('connection given up'));
  if (signal.aborted) abandon();
  signal.addEventListener('abort', abandon, { once: true });
  try {
    return await step;
  } finally {
    signal.removeEventListener('abort', abandon);
  }
}

async function linkUplink(server: ServerAddress, socket: Socket, options: UplinkOptions): Promise<Uplink> {
  const { dial, events, membership, serverName, timeout, signal } = options;
  const token = options.token();
  const hello = { ...options.hello, ...(token !== undefined && { token }) };
  const answer = requestLink(socket, serverName, hello, timeout);
  const { hubId, plane, serverCount } = await unlessGivenUp(socket, signal, answer);
  // Without TLS nothing proves who is there: a token goes to no host but the configured one.
  const mayRoam = token === undefined || options.tls !== undefined;
  let leaving = false;
  const link = new LinkServer({
    socket,
    peer: `hub ${hubId}`,
    role: 'agent',
    dial,
    events,
    membership: (message) => membership(mayRoam ? message : within(serverName, message)),
    goaway: () => {
      leaving = true;
      options.leave();
    },
  });
  return {
    server,
    plane,
    serverCount,
    serverId: hubId,
    protocol: 'link' as const,
    closed: link.closed,
    get open() {
      return link.open;
    },
    get leaving() {
      return leaving;
    },
    drain: () => link.drain(),
    retire() {
      leaving = true;
      link.drain();
      const timer = setTimeout(() => link.close(), DRAIN_SETTLE);
      void link.closed.then(() => clearTimeout(timer));
    },
    destroy: (reason) => link.destroy(reason),
  };
}

/** What a hub told, without the addresses of other hosts: to those hubs only the configured server leads. */
function within(host: string, message: MembershipMessage): MembershipMessage {
  const stripped = (hub: HubMember): HubMember =>
    hub.address !== '' && parseDestination(hub.address).host !== host ? { ...hub, address: '' } : hub;
  return message.type === 'membership'
    ? { ...message, hubs: message.hubs.map(stripped) }
    : { ...message, changed: message.changed.map(stripped) };
}

/** On a connection of its own, by the server's name: gRPC does its own handshake. */
async function packetUplink(server: ServerAddress, options: UplinkOptions): Promise<Uplink> {
  const { dial, events, serverName, timeout, signal, keepaliveTime: keepaliveMs } = options;
  const { agentId, identifiers, tenant } = options.hello;
  const token = options.token();
  const { serverId, serverCount, channel } = await connectPackets({
    target: formatDestination({ host: serverName, port: server.port }),
    ...(options.tls && { tls: options.tls }),
    agentId,
    identifiers,
    keepaliveMs,
    timeout,
    signal,
    ...(token !== undefined && { token }),
  });
  options.packetServers.add(formatDestination({ host: server.address, port: server.port }));
  const served = servePackets(channel, { role: 'agent', dial, tenant, events });
  return {
    server,
    serverId,
    serverCount,
    protocol: 'packets' as const,
    plane: '',
    leaving: false,
    closed: served.closed,
    get open() {
      return served.open;
    },
    drain: () => served.drain(),
    // Servers of ANP share no plane, so that each is needed.
    retire() {},
    destroy: (reason) => served.destroy(reason),
  };
}
