import { Arrivals, type Arrived } from './arrivals.ts';
import { RandomSet } from './pool.ts';
import type { Change, HubRecord, SessionRecord, Snapshot } from './records.ts';
import { destinationKeys, prefixLength, type Strategy, sessionKeys } from './strategies.ts';

/** A session as a gateway sees it. */
export interface Route {
  readonly record: SessionRecord;
  /** Tunnels of this gateway that run through it, dials included. */
  open: number;
}

export interface Choice {
  readonly tenant: string;
  readonly host: string;
  readonly strategies: readonly Strategy[];
  /** Preferred among equals; empty for no preference. */
  readonly zone: string;
  /** Sessions that were tried already. */
  readonly excluded: ReadonlySet<string>;
  /** Whether a session may be taken now. Default: each. */
  readonly usable?: (session: SessionRecord) => boolean;
}

/** Sessions under one key, apart by how much they are wanted. */
interface Pool {
  readonly byZone: Map<string, RandomSet<Route>>;
  readonly draining: RandomSet<Route>;
}

interface Tenant {
  sessions: number;
  readonly pools: Map<string, Pool>;
  /** How many sessions use a prefix length, by address family. */
  readonly lengths: Record<4 | 6, Map<number, number>>;
  /** The lengths in use, longest first. */
  readonly longestFirst: Record<4 | 6, readonly number[]>;
}

/** Where a route stands in its tenant's pools, kept so that it is taken out of just where it was put. */
interface Placement {
  readonly route: Route;
  readonly keys: readonly string[];
  readonly zone: string;
  readonly draining: boolean;
}

/**
 * A gateway's copy of the registry: which sessions there are, and which of them to take for a destination.
 *
 * Applying a change twice, or late, changes nothing: of two records about one session or hub the greater incarnation wins,
 * then the greater version.
 */
export class Directory {
  readonly #hubs = new Map<string, HubRecord>();
  readonly #placements = new Map<string, Placement>();
  readonly #byHub = new Map<string, Set<string>>();
  readonly #tenants = new Map<string, Tenant>();
  readonly #arrivals = new Arrivals();
  readonly #random: () => number;

  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  get size(): number {
    return this.#placements.size;
  }

  hubs(): Iterable<HubRecord> {
    return this.#hubs.values();
  }

  hub(hubId: string): HubRecord | undefined {
    return this.#hubs.get(hubId);
  }

  *sessions(): Iterable<SessionRecord> {
    for (const { route } of this.#placements.values()) yield route.record;
  }

  apply(change: Change): void {
    switch (change.kind) {
      case 'hub':
        this.#setHub(change.hub);
        return;
      case 'hub-gone': {
        const hub = this.#hubs.get(change.hubId);
        if (hub && hub.incarnation <= change.incarnation) this.#dropHub(change.hubId);
        return;
      }
      case 'session':
        this.#setSession(change.session);
        return;
      case 'session-gone': {
        const known = this.#placements.get(change.sessionId)?.route.record;
        if (known && !newer(known, change)) this.#remove(change.sessionId);
        return;
      }
    }
  }

  /** Takes a snapshot in place of all that is known, but for what `keep` says (a hub in this very process). */
  reset(snapshot: Snapshot, keep: (hubId: string) => boolean = () => false): void {
    const hubs = new Map(snapshot.hubs.map((hub) => [hub.hubId, hub]));
    const sessions = new Set(snapshot.sessions.map((session) => session.sessionId));
    for (const { hubId, incarnation } of [...this.#hubs.values()]) {
      // An earlier incarnation too takes the place of what is known: its clock, or the registry, was set back.
      if (hubs.get(hubId)?.incarnation !== incarnation && !keep(hubId)) this.#dropHub(hubId);
    }
    for (const [sessionId, { route }] of [...this.#placements]) {
      if (!sessions.has(sessionId) && !keep(route.record.hubId)) this.#remove(sessionId);
    }
    for (const hub of snapshot.hubs) this.#setHub(hub);
    for (const session of snapshot.sessions) this.#setSession(session);
  }

  /** Whether a tenant has any session. */
  serves(tenant: string): boolean {
    return this.#tenants.has(tenant);
  }

  /** How many sessions a tenant has. */
  sessionsOf(tenant: string): number {
    return this.#tenants.get(tenant)?.sessions ?? 0;
  }

  /** The tenants that have sessions, and how many. */
  *tenants(): Iterable<readonly [tenant: string, sessions: number]> {
    for (const [tenant, { sessions }] of this.#tenants) yield [tenant, sessions];
  }

  /** A hub can be reached that could not be before: to those who wait its sessions are as good as new. */
  reachable(hubId: string): void {
    const tenants = new Set<string>();
    for (const sessionId of this.#byHub.get(hubId) ?? []) {
      const placement = this.#placements.get(sessionId);
      if (placement) tenants.add(placement.route.record.tenant);
    }
    for (const tenant of tenants) this.#arrivals.tell(tenant, hubId);
  }

  /** Calls back when a tenant gets a session, or a hub of one is in reach again. @returns gives up waiting */
  onArrival(tenant: string, arrived: Arrived): () => void {
    return this.#arrivals.wait(tenant, arrived);
  }

  /** Forgets a session of which its hub says that it does not exist, until the hub announces it anew. */
  forget(sessionId: string): void {
    this.#remove(sessionId);
  }

  /**
   * The session to dial through: strategies in order, then the own zone before others, then sessions that drain; among
   * equals the one with fewer open tunnels of two drawn at random.
   */
  choose({ tenant, host, strategies, zone, excluded, usable = () => true }: Choice): Route | undefined {
    const known = this.#tenants.get(tenant);
    if (!known) return undefined;
    const eligible = ({ record }: Route) => !excluded.has(record.sessionId) && usable(record);
    for (const strategy of strategies) {
      for (const key of destinationKeys(strategy, host, known.longestFirst)) {
        const pool = known.pools.get(key);
        const route = pool && this.#draw(pool, zone, eligible);
        if (route) return route;
      }
    }
    return undefined;
  }

  #draw(pool: Pool, zone: string, eligible: (route: Route) => boolean): Route | undefined {
    const own = pool.byZone.get(zone);
    const near = own && this.#lessBusy(own, eligible);
    if (near) return near;
    // Other zones count by their sessions: one zone is drawn for the two candidates in proportion to its size.
    const others = [...pool.byZone].filter(([name]) => name !== zone).map(([, set]) => set);
    for (const set of this.#shuffledBySize(others)) {
      const route = this.#lessBusy(set, eligible);
      if (route) return route;
    }
    return this.#lessBusy(pool.draining, eligible);
  }

  #lessBusy(set: RandomSet<Route>, eligible: (route: Route) => boolean): Route | undefined {
    const first = set.draw(this.#random, eligible);
    if (!first || set.size === 1) return first;
    const second = set.draw(this.#random, (route) => route !== first && eligible(route));
    return second && second.open < first.open ? second : first;
  }

  #shuffledBySize(sets: RandomSet<Route>[]): RandomSet<Route>[] {
    if (sets.length < 2) return sets;
    return sets
      .map((set) => ({ set, rank: this.#random() ** (1 / set.size) }))
      .sort((a, b) => b.rank - a.rank)
      .map(({ set }) => set);
  }

  #setHub(hub: HubRecord): void {
    const known = this.#hubs.get(hub.hubId);
    if (known && known.incarnation > hub.incarnation) return;
    if (known && known.incarnation < hub.incarnation) this.#dropHub(hub.hubId);
    this.#hubs.set(hub.hubId, hub);
    if (known && known.zone === hub.zone && known.draining === hub.draining) return;
    // A copy: placing anew takes each session out of the set and puts it back at its end, so the set itself never ends.
    for (const sessionId of [...(this.#byHub.get(hub.hubId) ?? [])]) this.#place(sessionId);
  }

  /** A hub goes, and its sessions with it. */
  #dropHub(hubId: string): void {
    for (const sessionId of [...(this.#byHub.get(hubId) ?? [])]) this.#remove(sessionId);
    this.#hubs.delete(hubId);
  }

  #setSession(record: SessionRecord): void {
    const hub = this.#hubs.get(record.hubId);
    if (hub && hub.incarnation > record.incarnation) return;
    const known = this.#placements.get(record.sessionId);
    if (known && !newer(record, known.route.record)) return;
    const open = known?.route.open ?? 0;
    this.#remove(record.sessionId);
    this.#insert({ record, open });
  }

  #place(sessionId: string): void {
    const placement = this.#placements.get(sessionId);
    if (!placement) return;
    this.#remove(sessionId);
    this.#insert(placement.route);
  }

  #insert(route: Route): void {
    const { record } = route;
    const hub = this.#hubs.get(record.hubId);
    const placement: Placement = {
      route,
      keys: sessionKeys(record.identifiers),
      zone: hub?.zone ?? '',
      draining: record.draining || (hub?.draining ?? false),
    };
    this.#placements.set(record.sessionId, placement);
    getOrPut(this.#byHub, record.hubId, () => new Set<string>()).add(record.sessionId);
    const tenant = getOrPut(this.#tenants, record.tenant, emptyTenant);
    for (const key of placement.keys) {
      const pool = getOrPut(tenant.pools, key, emptyPool);
      poolPart(pool, placement).add(route);
      countLength(tenant, key, 1);
    }
    tenant.sessions++;
    this.#arrivals.tell(record.tenant, record.hubId);
  }

  #remove(sessionId: string): void {
    const placement = this.#placements.get(sessionId);
    if (!placement) return;
    const { record } = placement.route;
    this.#placements.delete(sessionId);
    const siblings = this.#byHub.get(record.hubId);
    siblings?.delete(sessionId);
    if (siblings?.size === 0) this.#byHub.delete(record.hubId);
    const tenant = this.#tenants.get(record.tenant) as Tenant;
    for (const key of placement.keys) {
      const pool = tenant.pools.get(key) as Pool;
      const part = poolPart(pool, placement);
      part.delete(placement.route);
      if (part.size === 0 && !placement.draining) pool.byZone.delete(placement.zone);
      if (pool.byZone.size === 0 && pool.draining.size === 0) tenant.pools.delete(key);
      countLength(tenant, key, -1);
    }
    tenant.sessions--;
    if (tenant.sessions === 0) this.#tenants.delete(record.tenant);
  }
}

/** Whether `a` was written after `b`: by a later incarnation, or by the same one with a greater version. */
function newer(
  a: { readonly incarnation: number; readonly version: number },
  b: { readonly incarnation: number; readonly version: number },
): boolean {
  return a.incarnation > b.incarnation || (a.incarnation === b.incarnation && a.version > b.version);
}

function emptyTenant(): Tenant {
  return { sessions: 0, pools: new Map(), lengths: { 4: new Map(), 6: new Map() }, longestFirst: { 4: [], 6: [] } };
}

function emptyPool(): Pool {
  return { byZone: new Map(), draining: new RandomSet() };
}

function poolPart(pool: Pool, { draining, zone }: Placement): RandomSet<Route> {
  return draining ? pool.draining : getOrPut(pool.byZone, zone, () => new RandomSet<Route>());
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

function getOrPut<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}
