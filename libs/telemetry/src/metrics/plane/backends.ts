import type { SessionRecord, Strategy } from '@isthmus/directory';
import type { Subscriptions } from '../../subscribe.ts';

/** The part of a session record that matters here: an agent that dials can go through. */
export type Backend = Pick<SessionRecord, 'tenant' | 'agentId' | 'identifiers'>;

/**
 * How many backends each strategy can choose among, as upstream counts them: agent ids (several sessions of an agent are one
 * backend), for destHost the addresses and names that agents announce, for destCIDR their networks. A draining agent counts.
 *
 * The counts are updated when a session opens or closes, so a scrape costs the same with one session and with a hundred thousand.
 */
export class Backends {
  /** How many sessions there are. Several may be one backend. */
  sessions = 0;
  readonly #ready: ReadonlyMap<Strategy, Tally>;

  /** Listeners that count a hub's own sessions. */
  readonly subscriptions: Subscriptions = {
    'session:open': (session) => this.came(session),
    'session:close': (session) => this.went(session),
  };

  constructor(strategies: readonly Strategy[]) {
    this.#ready = new Map(strategies.map((strategy) => [strategy, new Tally()]));
  }

  ready(strategy: Strategy): number {
    return this.#ready.get(strategy)?.distinct ?? 0;
  }

  came(backend: Backend): void {
    this.#count(backend, 1);
  }

  went(backend: Backend): void {
    this.#count(backend, -1);
  }

  #count(backend: Backend, by: 1 | -1): void {
    this.sessions += by;
    for (const [strategy, tally] of this.#ready) {
      for (const name of backendNames(strategy, backend)) tally.count(backend.tenant, name, by);
    }
  }
}

/** Counts distinct names, separately for each tenant. */
class Tally {
  distinct = 0;
  readonly #tenants = new Map<string, Map<string, number>>();

  count(tenant: string, name: string, by: 1 | -1): void {
    const names = this.#tenants.get(tenant) ?? new Map<string, number>();
    const times = (names.get(name) ?? 0) + by;
    this.distinct -= names.size;
    if (times > 0) names.set(name, times);
    else names.delete(name);
    this.distinct += names.size;
    if (names.size > 0) this.#tenants.set(tenant, names);
    else this.#tenants.delete(tenant);
  }
}

function backendNames(strategy: Strategy, { agentId, identifiers }: Backend): readonly string[] {
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
