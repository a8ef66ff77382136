import { type handleUnaryCall, Server, status } from '@grpc/grpc-js';
import { adminApi } from '@isthmus/proto';
import { formatDestination, type Role, type SessionInfo, type TunnelInfo } from '@isthmus/tunnel';

/** What is left when draining begins. */
export interface DrainSummary {
  /** Sessions that are told to move elsewhere. */
  readonly sessions: number;
  /** Tunnels that still run. */
  readonly tunnels: number;
}

/** A session as a hub holds it, or as a gateway knows it from the registry: without the wire under it. */
export type KnownSession = Omit<SessionInfo, 'protocol' | 'remote'> & Partial<SessionInfo>;

/** What a program shows and does on its admin port. */
export interface AdminBackend {
  sessions(): Iterable<KnownSession>;
  tunnels(): Iterable<TunnelInfo>;
  /** Begins to drain, and resolves without waiting for the end. Called again, it says what is left then. */
  drain(): Promise<DrainSummary>;
}

/** A client that asks nothing for so long is ended: it may be gone. */
const IDLE_CONNECTION_MS = 300_000;

interface Codec<T> {
  encode(message: T): { finish(): Uint8Array };
  decode(bytes: Uint8Array): T;
}

interface UnaryMethod<Request, Response> {
  readonly name: string;
  readonly requestType: Codec<Request>;
  readonly responseType: Codec<Response>;
}

/**
 * The admin RPC as a grpc-js server without a listener. It is grpc-js's Server and not nice-grpc's, which keeps the server
 * it wraps to itself: connections of a shared port could only be forwarded to it through a second socket.
 */
export function adminRpc(backend: AdminBackend): Server {
  const server = new Server({ 'grpc.max_connection_idle_ms': IDLE_CONNECTION_MS });
  const { listSessions, listTunnels, drain } = adminApi.AdminDefinition.methods;
  serveUnary(server, listSessions, ({ tenant }) => ({
    sessions: [...backend.sessions()]
      .filter((session) => tenant === '' || session.tenant === tenant)
      .sort(byAge)
      .map(sessionMessage),
  }));
  serveUnary(server, listTunnels, ({ tenant, sessionId }) => {
    const now = Date.now();
    return {
      tunnels: [...backend.tunnels()]
        .filter((tunnel) => tenant === '' || tunnel.dial.tenant === tenant)
        .filter((tunnel) => sessionId === '' || tunnel.sessionId === sessionId)
        .sort(byAge)
        .map((tunnel) => tunnelMessage(tunnel, now)),
    };
  });
  serveUnary(server, drain, () => backend.drain());
  return server;
}

function serveUnary<Request, Response>(
  server: Server,
  method: UnaryMethod<Request, Response>,
  answer: (request: Request) => Response | Promise<Response>,
): void {
  const handle: handleUnaryCall<Request, Response> = async (call, callback) => {
    try {
      callback(null, await answer(call.request));
    } catch (error) {
      callback({ code: status.INTERNAL, details: error instanceof Error ? error.message : String(error) });
    }
  };
  const path = `/${adminApi.AdminDefinition.fullName}/${method.name}`;
  const serialize = (response: Response) => Buffer.from(method.responseType.encode(response).finish());
  server.register(path, handle, serialize, (bytes) => method.requestType.decode(bytes), 'unary');
}

function byAge(a: { readonly since: number }, b: { readonly since: number }): number {
  return a.since - b.since;
}

const PROTOCOLS = {
  link: adminApi.LinkProtocol.LINK_PROTOCOL_LINK,
  packets: adminApi.LinkProtocol.LINK_PROTOCOL_PACKETS,
} as const satisfies Record<SessionInfo['protocol'], adminApi.LinkProtocol>;

const ROLES = {
  gateway: adminApi.Role.ROLE_GATEWAY,
  hub: adminApi.Role.ROLE_HUB,
  agent: adminApi.Role.ROLE_AGENT,
} as const satisfies Record<Role, adminApi.Role>;

function sessionMessage(session: KnownSession): adminApi.Session {
  const { ipv4, ipv6, host, cidr, defaultRoute } = session.identifiers;
  return {
    sessionId: session.sessionId,
    tenant: session.tenant,
    agentId: session.agentId,
    hubId: session.hubId,
    protocol: session.protocol ? PROTOCOLS[session.protocol] : adminApi.LinkProtocol.LINK_PROTOCOL_UNSPECIFIED,
    remote: session.remote ?? '',
    sinceMs: BigInt(session.since),
    identifiers: { ipv4: [...ipv4], ipv6: [...ipv6], host: [...host], cidr: [...cidr], defaultRoute },
  };
}

function tunnelMessage(tunnel: TunnelInfo, now: number): adminApi.Tunnel {
  return {
    dialId: tunnel.dial.id,
    role: ROLES[tunnel.role],
    tenant: tunnel.dial.tenant,
    destination: formatDestination(tunnel.dial.destination),
    agentId: tunnel.agentId,
    sessionId: tunnel.sessionId,
    hubId: tunnel.hubId,
    caller: tunnel.dial.caller?.identity ?? '',
    sinceMs: BigInt(tunnel.since),
    ageMs: BigInt(Math.max(0, now - tunnel.since)),
    bytesUp: BigInt(tunnel.up),
    bytesDown: BigInt(tunnel.down),
  };
}
