import type { Check } from './health.ts';

/** Checks that several programs share. The texts of failing checks are what an operator sees first. */

/** What a process knows about its registry's health. */
export interface RegistryHealth {
  /** Whether a first copy has arrived. */
  readonly synced: boolean;
  readonly up: boolean;
  /** The last report about it. */
  readonly detail: string;
  /** When it last answered, in milliseconds of `performance.now()`; undefined before the first answer. */
  readonly lastAnswerAt?: number | undefined;
}

export type AdmissionState = 'open' | 'leaving' | 'draining';

export function admissionCheck(admission: AdmissionState): Check {
  const details = { open: '', leaving: 'leaving: still accepts connections', draining: 'draining' };
  return { name: 'admission', ok: admission === 'open', detail: details[admission] };
}

/** Whether callers find the unix sockets of a process that listens there. */
export function socketsCheck(listeners: readonly { readonly lost: string | undefined }[]): Check {
  const lost = listeners.flatMap((listener) => listener.lost ?? []);
  return { name: 'sockets', ok: lost.length === 0, detail: lost.join('; ') };
}

/** Passes as long as there is a copy, because dials use the copy. The detail says how old the last answer is. */
export function registryCheck(registry: RegistryHealth, now = performance.now()): Check {
  const { synced, up, detail, lastAnswerAt } = registry;
  const name = 'registry';
  if (!synced) return { name, ok: false, detail: `no copy of the registry yet: ${detail}` };
  const age = lastAnswerAt === undefined ? '' : `answered ${((now - lastAnswerAt) / 1000).toFixed(1)} s ago`;
  if (up) return { name, ok: true, detail: age || detail };
  return { name, ok: true, detail: `${age === '' ? 'no answer' : age}, dials use its copy: ${detail}` };
}

/** Tenants with sessions, and the number of sessions. */
type Tenants = Iterable<readonly [tenant: string, sessions: number]>;

/** Number of tenants that are listed one by one, those with the most sessions first. */
const MAX_TENANTS = 20;

/** Checks whether dials of a gateway's tenant have somewhere to go. The detail is computed only when it is shown. */
export function sessionsCheck(
  directory: {
    sessionsOf(tenant: string): number;
    tenants(): Iterable<readonly [tenant: string, sessions: number]>;
    readonly quarantinedSessions: number;
  },
  tenant: string,
): Check {
  return {
    name: 'sessions',
    ok: directory.sessionsOf(tenant) > 0,
    get detail() {
      if (this.ok) {
        const kept = directory.quarantinedSessions;
        return countSessions(directory.tenants()) + (kept > 0 ? `, ${kept} in quarantine` : '');
      }
      const others = sum([...directory.tenants()]);
      return others === 0 ? NO_SESSION : `${NO_SESSION} (of other tenants: ${others})`;
    },
  };
}

const NO_SESSION = 'no agent has a session';

export function countSessions(tenants: Tenants): string {
  const all = [...tenants].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1));
  if (all.length === 0) return NO_SESSION;
  const listed = all.slice(0, MAX_TENANTS).map(([tenant, sessions]) => `${nameOf(tenant)}: ${sessions}`);
  const rest = all.slice(MAX_TENANTS);
  if (rest.length > 0) listed.push(`${rest.length} others: ${sum(rest)}`);
  return `sessions: ${sum(all)} (${listed.join(', ')})`;
}

function sum(tenants: (readonly [tenant: string, sessions: number])[]): number {
  return tenants.reduce((total, [, sessions]) => total + sessions, 0);
}

/** Returns a tenant's name, in quotes if it could be mistaken for anything else on the page. */
function nameOf(tenant: string): string {
  return /^[\w.-]{1,64}$/.test(tenant) ? tenant : JSON.stringify(tenant.slice(0, 64));
}
