import { adminApi } from '@isthmus/proto';
import { formatDestination, type Role, type SessionInfo, type TunnelInfo } from '@isthmus/tunnel';
import { absent } from './admin/refusals.ts';
import type { AdminBackend, KnownSession } from './admin-backend.ts';

/** The admin RPC: what the backend says, in the messages of the API. */
export function adminService(backend: AdminBackend): adminApi.AdminServiceImplementation {
  return {
    getStatus: () => Promise.reject(absent('this version does not answer GetStatus')),
    listMembers: () => Promise.reject(absent('this version does not answer ListMembers')),
    getConfig: () => Promise.reject(absent('this version does not answer GetConfig')),
    explain: () => Promise.reject(absent('this version does not answer Explain')),
    dial: () => Promise.reject(absent('this version does not answer Dial')),
    kick: () => Promise.reject(absent('this version does not answer Kick')),
    quarantine: () => Promise.reject(absent('this version does not answer Quarantine')),
    listQuarantined: () => Promise.reject(absent('this version does not answer ListQuarantined')),
    setLogLevel: () => Promise.reject(absent('this version does not answer SetLogLevel')),
    recentLogs: () => Promise.reject(absent('this version does not answer RecentLogs')),
    watchDials: () => {
      throw absent('this version does not answer WatchDials');
    },
    async listSessions({ tenant }) {
      const sessions = [...backend.sessions()]
        .filter((session) => tenant === '' || session.tenant === tenant)
        .sort(byAge)
        .map(sessionMessage);
      return { sessions };
    },
    async listTunnels({ tenant, sessionId }) {
      const now = Date.now();
      const tunnels = [...backend.tunnels()]
        .filter((tunnel) => tenant === '' || tunnel.dial.tenant === tenant)
        .filter((tunnel) => sessionId === '' || tunnel.sessionId === sessionId)
        .sort(byAge)
        .map((tunnel) => tunnelMessage(tunnel, now));
      return { tunnels };
    },
    drain: async ({ dryRun }) => (dryRun ? dryRunOf(backend) : { ...(await backend.drain()), plan: undefined }),
  };
}

/** Sessions or tunnels in the answer to a dry run: what an operator reads, and far below the limit of a message. */
const MAX_LISTED = 1000;

function dryRunOf(backend: AdminBackend): adminApi.DeepPartial<adminApi.DrainResponse> {
  const { sessions, moves, gracefulMs } = backend.plan();
  const now = Date.now();
  const tunnels = [...backend.tunnels()].sort(byAge);
  const through = new Map<string, number>();
  for (const { sessionId } of tunnels) through.set(sessionId, (through.get(sessionId) ?? 0) + 1);
  const all = [...moves].sort((a, b) => a.elsewhere - b.elsewhere);
  return {
    sessions,
    tunnels: tunnels.length,
    plan: {
      moves: all.slice(0, MAX_LISTED).map((move) => ({ ...move, tunnels: through.get(move.sessionId) ?? 0 })),
      stranded: all.filter(({ elsewhere }) => elsewhere === 0).length,
      running: tunnels.slice(0, MAX_LISTED).map((tunnel) => tunnelMessage(tunnel, now)),
      ...(gracefulMs !== undefined && { gracefulMs: BigInt(gracefulMs) }),
    },
  };
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
    draining: false,
    quarantined: false,
    quarantineReason: '',
    tunnels: 0,
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
