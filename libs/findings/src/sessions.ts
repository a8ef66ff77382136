import type { Session } from './evidence.ts';

/** What one member says of sessions. */
interface Told<S> {
  /** The member's id; of a hub, also the hub's. */
  readonly id: string;
  readonly sessions: readonly S[];
}

/**
 * Returns each session once: as its hub says, or, if that does not answer, as a gateway says that reaches the hub.
 * A gateway's copy is older: it may still have a session that its hub has ended.
 */
export function sessionsIn<S extends Session>(told: readonly Told<S>[]): S[] {
  const answering = new Set(told.map(({ id }) => id));
  const found = new Map<string, S>();
  for (const { id, sessions } of told)
    for (const session of sessions) {
      const { sessionId, hubId } = session;
      const better = answering.has(hubId) ? id === hubId : found.get(sessionId)?.suspected !== false;
      if (better) found.set(sessionId, session);
    }
  return [...found.values()];
}

/** `suspect`: it, or its hub, is silent. Dials go there only if they have no other way. */
type SessionsState = 'ready' | 'draining' | 'suspect' | 'quarantined';

/** The state of an agent, by its sessions; of a session by itself. */
export function stateOfSessions(
  sessions: readonly (Pick<Session, 'draining'> & Partial<Pick<Session, 'suspected' | 'quarantined'>>)[],
): SessionsState {
  if (sessions.some(({ quarantined }) => quarantined)) return 'quarantined';
  if (!sessions.every(({ draining, suspected }) => draining || suspected)) return 'ready';
  return sessions.some(({ suspected }) => suspected) ? 'suspect' : 'draining';
}
