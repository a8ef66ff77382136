import type { adminApi } from '@isthmus/proto/admin';
import {
  formatDestination,
  type HeldTunnel,
  type Hold,
  PlaneEnded,
  type SessionInfo,
  type TunnelInfo,
} from '@isthmus/tunnel';
import type { AdminBackend, KnownSession } from '../backend.ts';
import { ADMIN } from '../defaults.ts';
import {
  absent,
  byAge,
  type Call,
  eventMessage,
  invalid,
  notFound,
  ROLES,
  resumeMessage,
  sessionMessage,
  tenantAsked,
  tunnelMessage,
  tunnelsBySession,
} from './messages.ts';

export const listSessions: Call<'listSessions'> = async (backend, { tenant }) => {
  const through = tunnelsBySession(backend.tunnels());
  const hubs = [...(backend.plane?.hubs() ?? [])];
  const leaving = new Set(hubs.filter(({ draining }) => draining).map(({ hubId }) => hubId));
  const lost = new Set(hubs.filter((hub) => backend.plane?.linkTo(hub) === 'down').map(({ hubId }) => hubId));
  const sessions = [...backend.sessions()]
    .filter((session) => tenant === '' || session.tenant === tenant)
    .sort(byAge)
    .map((session) => {
      const { sessionId, hubId } = session;
      return {
        ...sessionMessage(session, backend.quarantine?.reasonFor(session), through.get(sessionId) ?? 0),
        draining: (session.draining ?? false) || leaving.has(hubId),
        suspected: (session.suspected ?? false) || lost.has(hubId),
      };
    });
  return { sessions, nowMs: Date.now() };
};

export const listTunnels: Call<'listTunnels'> = async (backend, { tenant, sessionId }) => {
  const now = Date.now();
  const held = new HeldTunnels((await backend.holds?.()) ?? []);
  const tunnels = [...backend.tunnels()].sort(byAge).map((tunnel) => held.message(tunnel, now));
  const found = [...tunnels, ...held.waiting(now)]
    .filter((tunnel) => tenant === '' || tunnel.tenant === tenant)
    .filter((tunnel) => sessionId === '' || tunnel.sessionId === sessionId);
  return { tunnels: found };
};

/** What `isthmus hold` says of the tunnels whose callers' ends it has. A gateway passes these on, and knows none that waits for a way. */
class HeldTunnels {
  readonly #left = new Map<string, { readonly hold: Hold; readonly tunnel: HeldTunnel }>();

  constructor(holds: readonly Hold[]) {
    for (const hold of holds)
      for (const tunnel of hold.tunnels) this.#left.set(`${hold.tenant} ${tunnel.dialId}`, { hold, tunnel });
  }

  message(tunnel: TunnelInfo, now: number): adminApi.Tunnel {
    const { dial } = tunnel;
    const key = `${dial.tenant} ${dial.id}`;
    const held = this.#left.get(key)?.tunnel;
    this.#left.delete(key);
    // What hold claims counts only for its own tunnels.
    if (!held || tunnel.role !== 'gateway' || dial.caller?.via !== 'hold') return tunnelMessage(tunnel, now);
    return { ...tunnelMessage(tunnel, now), resume: resumeMessage(held) };
  }

  /** Those that nothing carries. */
  *waiting(now: number): Iterable<adminApi.Tunnel> {
    for (const { hold, tunnel } of this.#left.values()) {
      const { dialId, destination, agentId, since, up, down, attached } = tunnel;
      if (attached) continue;
      const of = { dialId, role: ROLES.gateway, tenant: hold.tenant, caller: hold.caller, agentId };
      const about = { destination: formatDestination(destination), resume: resumeMessage(tunnel) };
      const counts = { sinceMs: since, ageMs: Math.max(0, now - since), bytesUp: up, bytesDown: down, idleMs: 0 };
      yield { ...of, ...about, ...counts, sessionId: '', hubId: '', halfClosed: '' };
    }
  }
}

export const drain: Call<'drain'> = async (backend, { dryRun }) => {
  if (dryRun) return dryRunOf(backend);
  const left = { sessions: backend.plan().sessions, tunnels: backend.tunnels().size };
  backend.drain();
  backend.log.info({ ...left }, 'operator asked for a drain');
  return { ...left, plan: undefined };
};

function dryRunOf(backend: AdminBackend): adminApi.DeepPartial<adminApi.DrainResponse> {
  const { sessions, moves, gracefulMs, idleMs = 0 } = backend.plan();
  const now = Date.now();
  const tunnels = [...backend.tunnels()].sort(byAge);
  const through = tunnelsBySession(tunnels);
  const all = [...moves].sort((a, b) => a.elsewhere - b.elsewhere);
  const leaving = new Set(all.filter(({ elsewhere }) => elsewhere > 0).map(({ sessionId }) => sessionId));
  const running = tunnels.slice(0, ADMIN.drainListed);
  const fateOf = (tunnel: TunnelInfo) => {
    const { role, dial, sessionId, idleMs: idle = 0 } = tunnel;
    // A hub passes on what the two halves at its sides resume elsewhere.
    if (role === 'hub') return dial.resumeOffer && leaving.has(sessionId) ? 'moves' : 'cut';
    return idleMs > 0 && idle >= idleMs ? 'ends' : 'cut';
  };
  return {
    sessions,
    tunnels: tunnels.length,
    plan: {
      moves: all.slice(0, ADMIN.drainListed).map((move) => ({ ...move, tunnels: through.get(move.sessionId) ?? 0 })),
      stranded: all.filter(({ elsewhere }) => elsewhere === 0).length,
      running: running.map((tunnel) => tunnelMessage(tunnel, now)),
      fates: running.map(fateOf),
      ...(gracefulMs !== undefined && { gracefulMs }),
    },
  };
}

/** The fields that identify a session. */
type SessionName = Pick<SessionInfo, 'sessionId' | 'tenant' | 'agentId'>;

/** What a program can end at once. */
export interface KickPart {
  /** Ends the tunnel of a dial. @returns how many there were, one per role of the process */
  tunnel(dialId: string, reason: Error): number;
  /** Ends the sessions that `which` selects. Unset for a program that holds none. @returns the ended sessions */
  sessions?(which: (session: SessionName) => boolean, reason: Error): readonly SessionInfo[];
}

type Answer = Pick<adminApi.KickResponse, 'sessionIds' | 'tunnels'>;

export const kick: Call<'kick'> = async (backend, { target, reason }) => {
  const error = new PlaneEnded(reasonOf(reason), { by: 'operator' });
  switch (target?.$case) {
    case 'dialId':
      return kickTunnel(backend, target.value, error);
    case 'sessionId': {
      const id = named('session_id', target.value);
      return kickSessions(backend, ({ sessionId }) => sessionId === id, `session ${id}`, error);
    }
    case 'agent': {
      const tenant = tenantAsked(backend, target.value.tenant);
      const agent = named('agent.agent_id', target.value.agentId);
      const which = (session: SessionName) => session.agentId === agent && session.tenant === tenant;
      return kickSessions(backend, which, `session of agent ${agent} of tenant ${tenant}`, error);
    }
    default:
      throw invalid('no target: set session_id, agent or dial_id');
  }
};

function kickTunnel({ kick, log }: AdminBackend, dialId: string, reason: Error): Answer {
  const tunnels = kick.tunnel(named('dial_id', dialId), reason);
  if (tunnels === 0) throw notFound(`no tunnel of dial ${dialId} runs here: ListTunnels says which do`);
  log.info({ dial: dialId, reason: reason.message }, 'operator ended a tunnel');
  return { sessionIds: [], tunnels };
}

function kickSessions(
  { kick, log, tunnels, sessions }: AdminBackend,
  which: (session: SessionName) => boolean,
  what: string,
  reason: Error,
): Answer {
  if (!kick.sessions) throw absent(`this program holds no sessions: ask the hub that does${hubsOf(sessions(), which)}`);
  const through = tunnelsBySession(tunnels());
  const ended = kick.sessions(which, reason);
  if (ended.length === 0) {
    throw notFound(`no ${what} here: ask the hub that holds it${hubsOf(sessions(), which)}`);
  }
  const ids = ended.map(({ sessionId }) => sessionId);
  log.info(
    { sessions: ids.slice(0, ADMIN.kickLogged), count: ids.length, reason: reason.message },
    'operator ended sessions',
  );
  return { sessionIds: ids, tunnels: ids.reduce((sum, id) => sum + (through.get(id) ?? 0), 0) };
}

/** Returns the hubs of the selected sessions, as far as this process knows. */
function hubsOf(sessions: Iterable<KnownSession>, which: (session: SessionName) => boolean): string {
  const hubs = new Set<string>();
  for (const session of sessions) if (which(session)) hubs.add(session.hubId);
  return hubs.size === 0 ? '' : `: ${[...hubs].join(', ')}`;
}

function named(field: string, value: string): string {
  if (value === '') throw invalid(`${field} is empty`);
  return value;
}

function reasonOf(reason: string): string {
  if (reason.length > ADMIN.reason)
    throw invalid(`reason has ${reason.length} characters: want at most ${ADMIN.reason}`);
  return reason === '' ? 'ended by an operator' : `ended by an operator: ${reason}`;
}

export const getHistory: Call<'getHistory'> = async ({ recent }, { tenant }) => {
  const of = tenant === '' ? undefined : tenant;
  const { cuts, forgotten } = recent.cuts(of);
  return {
    ...recent.slots(of),
    refusals: recent.refusals(ADMIN.historyMs),
    cuts: [...cuts],
    cutsForgotten: forgotten,
    nowMs: Date.now(),
  };
};

export const listEvents: Call<'listEvents'> = async ({ recent }) => {
  return { events: recent.events().map(eventMessage), nowMs: Date.now() };
};
