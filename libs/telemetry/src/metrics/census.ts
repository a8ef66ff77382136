import type { SessionRecord, Strategy } from '@isthmus/directory';
import { countIn } from '@isthmus/runtime';
import { TELEMETRY } from '../defaults.ts';
import type { Subscriptions } from '../events.ts';
import type { Families } from './families.ts';

/** The shared line. No tenant can have this name. */
const OTHERS = '(others)';

const REST = `The first ${TELEMETRY.metricNames} have a line each; the rest share "${OTHERS}".`;

/** The part of a session that is counted, whether a hub holds it or a directory knows it. */
type CountedSession = Pick<SessionRecord, 'tenant' | 'agentId' | 'hubId' | 'identifiers'>;

/** Counts sessions. */
export interface SessionCounter {
  /** @param by 1 for one that has come, -1 for one that has gone */
  count(session: CountedSession, by: 1 | -1): void;
}

/** The sessions that the process itself holds as a hub. */
export function ownSessions(counter: SessionCounter): Subscriptions {
  return {
    'session:open': (session) => counter.count(session, 1),
    'session:close': (session) => counter.count(session, -1),
  };
}

/** Counts sessions by tenant and by hub. The two counts are separate, since the number of pairs would have no bound. */
export class Census implements SessionCounter {
  total = 0;
  readonly tenants = new Map<string, number>();
  readonly hubs = new Map<string, number>();

  count({ tenant, hubId }: Pick<CountedSession, 'tenant' | 'hubId'>, by: 1 | -1): void {
    this.total += by;
    countIn(this.tenants, tenant, by);
    countIn(this.hubs, hubId, by);
  }
}

/**
 * Adds the family `tenant_NAME` or `hub_NAME`. The first 1,000 names have a line each. The others share one line. When one of the first drops
 * to zero, one of the others gets its line. So the lines must be gauges: the counter of the others would drop then.
 * @param always names that have a line even at zero, so that zero can be told from unknown
 */
export function showByName(
  families: Families,
  by: 'tenant' | 'hub',
  name: string,
  what: string,
  counts: () => ReadonlyMap<string, number>,
  always: () => readonly string[] = () => [],
): void {
  families.tallied('gauge', `${by}_${name}{${by}}`, `Current number of ${what}, by ${by}. ${REST}`, () =>
    Array.from(
      bounded(counts(), always()),
      ([of, count]) => [{ [by]: of } as Record<typeof by, string>, count] as const,
    ),
  );
}

function* bounded(counts: ReadonlyMap<string, number>, always: readonly string[]): Iterable<[string, number]> {
  for (const name of always) yield [name, counts.get(name) ?? 0];
  let [named, others] = [always.length, 0];
  for (const [name, count] of counts) {
    if (always.includes(name)) continue;
    if (named === TELEMETRY.metricNames || name.length > TELEMETRY.metricNameCharacters || name === OTHERS)
      others += count;
    else {
      named++;
      yield [name, count];
    }
  }
  if (others > 0) yield [OTHERS, others];
}

/**
 * How many backends each strategy can choose among, as upstream counts them: agent ids (several sessions of an agent are one
 * backend), for destHost the addresses and names that agents announce, for destCIDR their networks. A draining agent counts.
 *
 * The counts are updated when a session opens or closes, so a scrape costs the same with one session and with a hundred thousand.
 */
export class Backends implements SessionCounter {
  readonly #ready: ReadonlyMap<Strategy, DistinctNames>;

  constructor(strategies: readonly Strategy[]) {
    this.#ready = new Map(strategies.map((strategy) => [strategy, new DistinctNames()]));
  }

  ready(strategy: Strategy): number {
    return this.#ready.get(strategy)?.total ?? 0;
  }

  count(session: CountedSession, by: 1 | -1): void {
    for (const [strategy, tally] of this.#ready) {
      for (const name of backendNames(strategy, session)) tally.count(session.tenant, name, by);
    }
  }
}

/** Counts distinct names, each as long as there is at least one session of it, separately for each tenant. */
export class DistinctNames {
  /** Of all tenants. */
  total = 0;
  readonly #tenants = new Map<string, Map<string, number>>();

  count(tenant: string, name: string, by: 1 | -1): void {
    const names = this.#tenants.get(tenant) ?? new Map<string, number>();
    const times = (names.get(name) ?? 0) + by;
    this.total -= names.size;
    if (times > 0) names.set(name, times);
    else names.delete(name);
    this.total += names.size;
    if (names.size > 0) this.#tenants.set(tenant, names);
    else this.#tenants.delete(tenant);
  }

  *tenants(): Iterable<readonly [tenant: string, names: number]> {
    for (const [tenant, names] of this.#tenants) yield [tenant, names.size];
  }
}

function backendNames(strategy: Strategy, { agentId, identifiers }: CountedSession): readonly string[] {
  switch (strategy) {
    case 'default':
      return [agentId];
    case 'defaultRoute':
      return identifiers.defaultRoute ? [agentId] : [];
    case 'destHost':
      return [...identifiers.ipv4, ...identifiers.ipv6, ...identifiers.host];
    case 'destCIDR':
      return identifiers.cidr;
  }
}
