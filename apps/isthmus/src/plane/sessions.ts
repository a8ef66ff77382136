import { adminApi } from '@isthmus/proto/admin';
import { isoTime } from '../output/json.ts';
import type { Answers, Unanswered } from './member.ts';
import type { Plane } from './plane.ts';

export interface SessionView {
  readonly session: string;
  readonly tenant: string;
  readonly agent: string;
  readonly hub: string;
  /** `link` for our agent, `packets` for Konnectivity's; empty if only gateways report the session. */
  readonly protocol: string;
  readonly remote: string;
  readonly since: string;
  readonly ageMs: number;
  readonly reaches: readonly string[];
  readonly draining: boolean;
  /** Why its agent is in quarantine; unset if it is not. */
  readonly quarantined?: string;
  readonly tunnels: number;
}

export async function sessionsOf(
  plane: Plane,
  tenant: string,
): Promise<{ sessions: SessionView[]; unanswered: readonly Unanswered[] }> {
  const { sessions, unanswered } = await allSessions(plane, tenant);
  return { sessions: sessionViews(sessions), unanswered };
}

export function sessionViews(sessions: readonly adminApi.Session[]): SessionView[] {
  const now = Date.now();
  return sessions.map((session) => sessionView(session, now)).sort(byAgent);
}

/** Returns each session of the plane once: as its hub reports it or, if the hub does not answer, as a gateway knows it. */
export async function allSessions(
  plane: Plane,
  tenant: string,
): Promise<{ sessions: adminApi.Session[]; unanswered: readonly Unanswered[] }> {
  const asked: Answers<adminApi.Session[]> = await plane.ask(
    async (admin, signal) => (await admin.listSessions({ tenant }, { signal })).sessions,
    'hub',
    'gateway',
  );
  const found = new Map<string, adminApi.Session>();
  for (const { value } of asked.answers) {
    for (const session of value) {
      const known = found.get(session.sessionId);
      if (!known || (known.protocol === UNKNOWN && session.protocol !== UNKNOWN)) found.set(session.sessionId, session);
    }
  }
  return { sessions: [...found.values()], unanswered: asked.unanswered };
}

const UNKNOWN = adminApi.LinkProtocol.LINK_PROTOCOL_UNSPECIFIED;

const PROTOCOLS: Readonly<Record<number, string>> = {
  [adminApi.LinkProtocol.LINK_PROTOCOL_LINK]: 'link',
  [adminApi.LinkProtocol.LINK_PROTOCOL_PACKETS]: 'packets',
};

function sessionView(session: adminApi.Session, now: number): SessionView {
  return {
    session: session.sessionId,
    tenant: session.tenant,
    agent: session.agentId,
    hub: session.hubId,
    protocol: PROTOCOLS[session.protocol] ?? '',
    remote: session.remote,
    since: isoTime(session.sinceMs),
    ageMs: Math.max(0, now - Number(session.sinceMs)),
    reaches: reach(session.identifiers),
    draining: session.draining,
    ...(session.quarantined && { quarantined: session.quarantineReason }),
    tunnels: session.tunnels,
  };
}

/** Returns what an agent says it reaches. The strategy `default` may send it anything else. */
function reach(identifiers: adminApi.Identifiers | undefined): string[] {
  if (!identifiers) return [];
  const { ipv4, ipv6, host, cidr, defaultRoute } = identifiers;
  return [...host, ...cidr, ...ipv4, ...ipv6, ...(defaultRoute ? ['default-route'] : [])];
}

function byAgent(a: SessionView, b: SessionView): number {
  return (
    a.tenant.localeCompare(b.tenant) ||
    a.agent.localeCompare(b.agent, 'en', { numeric: true }) ||
    a.hub.localeCompare(b.hub, 'en', { numeric: true })
  );
}
