import type { SessionRecord } from '@isthmus/tunnel';
import type { Check } from './health.ts';

/** Checks that several programs have. Their words while they do not hold are what an operator sees first. */

/** What a process knows of its registry's health. */
export interface RegistryHealth {
  /** A first copy is in. */
  readonly synced: boolean;
  readonly up: boolean;
  /** The last word about it. */
  readonly detail: string;
  /** When it answered last, in milliseconds of `performance.now()`; undefined before the first answer. */
  readonly lastAnswerAt?: number | undefined;
}

export type AdmissionState = 'open' | 'leaving' | 'draining';

export function admissionCheck(admission: AdmissionState): Check {
  const details = { open: '', leaving: 'leaving: it still takes dials', draining: 'draining' };
  return { name: 'admission', ok: admission === 'open', detail: details[admission] };
}

/** Holds as long as there is a copy, for dials go by the copy; and says how old the last answer is. */
export function registryCheck(registry: RegistryHealth, now = performance.now()): Check {
  const { synced, up, detail, lastAnswerAt } = registry;
  const name = 'registry';
  if (!synced) return { name, ok: false, detail: `no copy of the registry yet: ${detail}` };
  const age = lastAnswerAt === undefined ? '' : `answered ${((now - lastAnswerAt) / 1000).toFixed(1)} s ago`;
  if (up) return { name, ok: true, detail: age || detail };
  return { name, ok: true, detail: `${age === '' ? 'no answer' : age}, dials go by its copy: ${detail}` };
}

type Session = Pick<SessionRecord, 'tenant' | 'agentId'>;

/** Whether dials of a gateway's tenant have somewhere to go. */
export function sessionsCheck(sessions: Iterable<Session>, tenant: string): Check {
  const own: Session[] = [];
  let others = 0;
  for (const session of sessions) {
    if (session.tenant === tenant) own.push(session);
    else others++;
  }
  const detail = others === 0 ? countSessions(own) : `${countSessions(own)} (of other tenants: ${others})`;
  return { name: 'sessions', ok: own.length > 0, detail };
}

export function countSessions(sessions: Iterable<Session>): string {
  const agents = new Set<string>();
  let count = 0;
  for (const { tenant, agentId } of sessions) {
    count++;
    agents.add(JSON.stringify([tenant, agentId]));
  }
  return count === 0 ? 'no agent has a session' : `sessions: ${count}, agents: ${agents.size}`;
}
