import { RandomSet } from '@isthmus/runtime';
import { getOrPut } from '../get-or-put.ts';
import { agentKey } from '../replica/quarantine.ts';
import type { AgentName, SessionRecord } from '../replica/records.ts';
import { destinationKeys, prefixLength, type Strategy, sessionKeys } from './strategies.ts';
import { drawFrom, type Pool, partOf, type Tier, tiersIn } from './tiers.ts';

/** A session as a gateway sees it. */
export interface Route {
  /** The latest record. */
  record: SessionRecord;
  /** Open tunnels and pending dials of this gateway through the session. */
  open: number;
}

export interface Choice {
  readonly tenant: string;
  readonly host: string;
  readonly strategies: readonly Strategy[];
  /** Preferred among equals; empty for no preference. */
  readonly zone: string;
  /** Only sessions of this agent, whatever it can reach. Default: any agent. */
  readonly agent?: string;
  /** Only sessions of this process of the agent, even in quarantine: a tunnel that is resumed is no new dial. */
  readonly instance?: string;
  /** Sessions that were already tried. */
  readonly excluded: ReadonlySet<string>;
  /** Whether a session may be taken now. Default: always. */
  readonly usable?: (session: SessionRecord) => boolean;
  /** Whether `usable` also accepts suspects. Default: false. */
  readonly suspected?: boolean;
}

/** What decides how much a session is preferred. */
export interface RouteState {
  /** Its hub runs in this process. */
  readonly own: boolean;
  readonly zone: string;
  /** Dials use the session only if there is no other. */
  readonly draining: boolean;
  /** No dial uses the session. */
  readonly quarantined: boolean;
}

interface Tenant {
  sessions: number;
  readonly pools: Map<string, Pool>;
  /** Sessions in quarantine, which are in no pool, by the same keys. */
  readonly quarantined: Map<string, Set<Route>>;
  /** How many sessions use a prefix length, by address family. */
  readonly lengths: Record<4 | 6, Map<number, number>>;
  /** The lengths in use, longest first. */
  readonly longestFirst: Record<4 | 6, readonly number[]>;
}

/** Where a route is in its tenant's pools, remembered so that `remove` finds it. */
export interface Place extends RouteState {
  readonly route: Route;
  readonly keys: readonly string[];
}

/**
 * Sessions, indexed by tenant, by what they can reach and by preference, so that a dial finds its session without visiting the
 * others.
 */
export class Placement {
  readonly #places = new Map<string, Place>();
  readonly #tenants = new Map<string, Tenant>();
  readonly #byAgent = new Map<string, Set<Route>>();
  readonly #random: () => number;

  constructor(random: () => number) {
    this.#random = random;
  }

  get size(): number {
    return this.#places.size;
  }

  route(sessionId: string): Route | undefined {
    return this.#places.get(sessionId)?.route;
  }

  /** The place of each session. */
  places(): Iterable<Place> {
    return this.#places.values();
  }

  /** How many sessions a tenant has, including those in quarantine. */
  sessionsOf(tenant: string): number {
    return this.#tenants.get(tenant)?.sessions ?? 0;
  }

  /** How many sessions are in quarantine, over all tenants. */
  get quarantinedCount(): number {
    let count = 0;
    for (const { quarantined } of this.#tenants.values()) count += quarantined.get('any')?.size ?? 0;
    return count;
  }

  /** The prefix lengths that a tenant's sessions use, longest first, by address family. */
  prefixLengths(tenant: string): Readonly<Record<4 | 6, readonly number[]>> {
    return this.#tenants.get(tenant)?.longestFirst ?? { 4: [], 6: [] };
  }

  /** The tenants that have sessions, and how many. */
  *tenants(): Iterable<readonly [tenant: string, sessions: number]> {
    for (const [tenant, { sessions }] of this.#tenants) yield [tenant, sessions];
  }

  /** Adds a session, or replaces the one with the same id. */
  put(route: Route, state: RouteState): void {
    const { sessionId, tenant: name, identifiers } = route.record;
    this.remove(sessionId);
    const place: Place = { route, keys: sessionKeys(identifiers), ...state };
    this.#places.set(sessionId, place);
    const tenant = getOrPut(this.#tenants, name, emptyTenant);
    for (const key of place.keys) {
      if (place.quarantined) getOrPut(tenant.quarantined, key, () => new Set<Route>()).add(route);
      else getOrPut(poolOf(tenant, key), partOf(place), () => new RandomSet<Route>()).add(route);
      countLength(tenant, key, 1);
    }
    tenant.sessions++;
    getOrPut(this.#byAgent, agentKey(route.record), () => new Set<Route>()).add(route);
  }

  /** @returns the removed route, if there was one */
  remove(sessionId: string): Route | undefined {
    const place = this.#places.get(sessionId);
    if (!place) return undefined;
    const { route, keys } = place;
    this.#places.delete(sessionId);
    const tenant = this.#tenants.get(route.record.tenant) as Tenant;
    for (const key of keys) {
      if (place.quarantined) removeQuarantined(tenant, key, route);
      else removePooled(tenant, key, place);
      countLength(tenant, key, -1);
    }
    tenant.sessions--;
    if (tenant.sessions === 0) this.#tenants.delete(route.record.tenant);
    const siblings = this.#byAgent.get(agentKey(route.record)) as Set<Route>;
    siblings.delete(route);
    if (siblings.size === 0) this.#byAgent.delete(agentKey(route.record));
    return route;
  }

  /** Yields the sessions for a dial, in tiers: by strategy, then by key, then in the order of `tiersIn`. */
  *tiers(choice: Choice): Generator<Tier> {
    const { tenant, host, strategies, zone, agent, excluded, usable = () => true, suspected = false } = choice;
    const known = this.#tenants.get(tenant);
    if (!known) return;
    const eligible = ({ record }: Route) => !excluded.has(record.sessionId) && usable(record);
    const load = (route: Route) => this.#openOf(route);
    if (agent !== undefined) {
      const pool = this.#poolOfAgent({ tenant, agentId: agent }, choice.instance);
      yield* tiersIn(pool, { suspected, step: 0, key: 'any', zone, eligible, load });
      return;
    }
    for (let step = 0; step < strategies.length; step++) {
      for (const key of destinationKeys(strategies[step] as Strategy, host, known.longestFirst)) {
        const pool = known.pools.get(key);
        if (pool) yield* tiersIn(pool, { suspected, step, key, zone, eligible, load });
      }
    }
  }

  /** Draws a session from the first tier that has one. */
  draw(tiers: Iterable<Tier>): Route | undefined {
    for (const tier of tiers) {
      const route = drawFrom(tier, this.#random);
      if (route) return route;
    }
    return undefined;
  }

  /** Sessions that would be candidates if they were not in quarantine. */
  *quarantined({
    tenant,
    host,
    strategies,
    agent,
  }: Omit<Choice, 'zone' | 'excluded' | 'usable' | 'suspected'>): Iterable<Route> {
    const known = this.#tenants.get(tenant);
    if (!known) return;
    for (const strategy of strategies) {
      for (const key of destinationKeys(strategy, host, known.longestFirst)) {
        for (const route of known.quarantined.get(key) ?? []) if (isOf(agent, route.record)) yield route;
      }
    }
  }

  /** The places of an agent's sessions. */
  *ofAgent(agent: AgentName): Iterable<Place> {
    for (const { record } of this.#byAgent.get(agentKey(agent)) ?? [])
      yield this.#places.get(record.sessionId) as Place;
  }

  /** An agent has few sessions, so they need no index. */
  #poolOfAgent(agent: AgentName, instance: string | undefined): Pool {
    const pool: Pool = new Map();
    for (const place of this.ofAgent(agent)) {
      const { route, quarantined } = place;
      if (instance === undefined ? !quarantined : route.record.instance === instance)
        getOrPut(pool, partOf(place), () => new RandomSet<Route>()).add(route);
    }
    return pool;
  }

  /** Open tunnels and pending dials of this gateway through an agent, over all hubs. */
  #openOf(route: Route): number {
    let open = 0;
    for (const sibling of this.#byAgent.get(agentKey(route.record)) ?? []) open += sibling.open;
    return open;
  }
}

function emptyTenant(): Tenant {
  return {
    sessions: 0,
    pools: new Map(),
    quarantined: new Map(),
    lengths: { 4: new Map(), 6: new Map() },
    longestFirst: { 4: [], 6: [] },
  };
}

function poolOf({ pools }: Tenant, key: string): Pool {
  return getOrPut(pools, key, (): Pool => new Map());
}

function removePooled(tenant: Tenant, key: string, place: Place): void {
  const pool = tenant.pools.get(key) as Pool;
  const part = pool.get(partOf(place));
  part?.delete(place.route);
  if (part?.size === 0) pool.delete(partOf(place));
  if (pool.size === 0) tenant.pools.delete(key);
}

function removeQuarantined(tenant: Tenant, key: string, route: Route): void {
  const routes = tenant.quarantined.get(key);
  routes?.delete(route);
  if (routes?.size === 0) tenant.quarantined.delete(key);
}

function countLength(tenant: Tenant, key: string, by: 1 | -1): void {
  const prefix = prefixLength(key);
  if (!prefix) return;
  const { family, bits } = prefix;
  const lengths = tenant.lengths[family];
  const count = (lengths.get(bits) ?? 0) + by;
  if (count > 0) lengths.set(bits, count);
  else lengths.delete(bits);
  if (count === (by === 1 ? 1 : 0)) tenant.longestFirst[family] = [...lengths.keys()].sort((a, b) => b - a);
}

function isOf(agent: string | undefined, { agentId }: SessionRecord): boolean {
  return agent === undefined || agentId === agent;
}
