import type { RandomSet } from '@isthmus/runtime';
import type { NextHop } from '@isthmus/tunnel';
import { DIRECTORY } from './defaults.ts';
import type { Directory } from './directory.ts';
import { DRAINING, destinationKeys, OWN, Pool, type Session, type Strategy } from './placement.ts';

/** What decides a route, besides the dial. */
export interface RouteOptions {
  readonly directory: Directory;
  readonly strategies: readonly Strategy[];
  /** The gateway's own zone. Its sessions are preferred among equals. Empty for no preference. */
  readonly zone: string;
  /** Returns the way to a hub. Undefined if there is no way at the moment. */
  readonly nextHop: (hubId: string) => Pick<NextHop, 'dial'> | undefined;
  /** Hubs and sessions that recently did not acknowledge a dial in time, or lacked sockets or memory for it. */
  readonly suspects: { readonly size: number; has(id: string, tenant: string): boolean };
}

/** What a route leads to. */
export interface RouteTo {
  readonly tenant: string;
  readonly host: string;
  /** Only sessions of this agent, whatever it can reach. Default: any agent. */
  readonly agent?: string | undefined;
  /** Only sessions of this process of the agent, even in quarantine: a tunnel that is resumed is no new dial. */
  readonly instance?: string | undefined;
  /** Sessions that were tried already. Default: none. */
  readonly tried?: ReadonlySet<string> | undefined;
}

/** What a strategy looks up. */
export interface Lookup {
  /** The strategy's index. */
  readonly step: number;
  readonly key: string;
}

/** Why a session is where it is in a route. Sessions with the same object are as good: only chance and load decide between them. */
export interface Rank extends Lookup {
  /** Whether it or its hub is a suspect. */
  readonly suspected: boolean;
  readonly place: 'own' | 'near' | 'far' | 'draining';
  /** Whether no busy agent of the own hub has this rank or a better one. */
  readonly skipsBusy: boolean;
}

/** Why no dial uses a session. */
export interface LeftOut extends Lookup {
  /**
   * `quarantined`: its agent is in quarantine. `tried`: it was tried already. `unreachable`: there is no way to its hub. `unfound`: no
   * strategy finds it; it has no key then.
   */
  readonly why: 'quarantined' | 'tried' | 'unreachable' | 'unfound';
  readonly reachable: boolean;
  readonly suspected: boolean;
}

/** A session in a route: its rank, or why it is left out. */
export type Routed =
  | { readonly session: Session; readonly rank: Rank; readonly leftOut?: undefined }
  | { readonly session: Session; readonly rank?: undefined; readonly leftOut: LeftOut };

/** Sessions of one rank. They may be of better ranks, too. */
interface Tier extends Rank {
  readonly sets: readonly RandomSet<Session>[];
  readonly accepts: (session: Session) => boolean;
}

/** What one lookup finds. */
interface Found extends Lookup {
  readonly pool: Pool | undefined;
  readonly quarantined: Iterable<Session>;
}

/**
 * Yields a tenant's sessions for a destination, best first, then those that are left out. Suspects come last of those that are not.
 * Finds each when it is asked for: a dial takes the first, and pays for no more; `isthmus explain` shows all. A session that is found under
 * several keys comes once for each.
 */
export function* route(options: RouteOptions, to: RouteTo): Generator<Routed, void> {
  const seen = new Set<string>();
  yield* ranked(options, to, seen);
  yield* leftOut(options, to, seen);
}

/** Of a session that one lookup finds. */
const idOf = ({ step, key }: Lookup, { record }: Session) => `${step} ${key} ${record.sessionId}`;

/** Returns the session that a dial takes: the first of its route. */
export function bestOf(options: RouteOptions, to: RouteTo): Session | undefined {
  for (const tier of tiersOf(options, to)) {
    const session = drawFrom(tier, options.directory.random);
    if (session) return session;
  }
  return undefined;
}

/** Returns only the sessions that have a rank, best first. @param seen gets what was found */
function ranked(options: RouteOptions, to: RouteTo, seen: Set<string>): Routed[] {
  const found: Routed[] = [];
  for (const tier of tiersOf(options, to)) {
    const first = drawFrom(tier, options.directory.random);
    for (const session of first ? [first, ...tier.sets.flatMap((set) => [...set])] : []) {
      const id = idOf(tier, session);
      if (seen.has(id) || !tier.accepts(session)) continue;
      seen.add(id);
      found.push({ session, rank: tier });
    }
  }
  return found;
}

/** Yields the tiers of a route, best first. Finds each when it is asked for. */
function* tiersOf(options: RouteOptions, to: RouteTo): Generator<Tier, void> {
  const { directory, nextHop, suspects } = options;
  const { tenant, tried } = to;
  const all = lookups(options, to);
  for (const suspected of [false, true]) {
    const takesAll = suspected || suspects.size === 0;
    // Most questions in a row are about one hub.
    let asked: string | undefined;
    let answer = false;
    const usable = (hubId: string) => {
      if (hubId === asked) return answer;
      asked = hubId;
      answer = nextHop(hubId) !== undefined && (takesAll || !suspects.has(hubId, tenant));
      return answer;
    };
    // Without a usable hub, the search would visit every session in vain, perhaps thousands.
    if (!directory.known.keys().some(usable)) continue;
    const eligible = ({ record: { sessionId, hubId } }: Session) =>
      !tried?.has(sessionId) && usable(hubId) && (takesAll || !suspects.has(sessionId, tenant));
    for (const found of all) yield* tiersIn(found, options, suspected, eligible);
  }
}

/** Yields the sessions of a destination whose agents are not in quarantine, in no order: of a dial's tenant only, and as they are asked for. */
export function* serving(options: RouteOptions, to: RouteTo): Generator<Session, void> {
  for (const found of lookups(options, to)) yield* sessionsIn(found);
}

/** Returns what is looked up for a destination, and what that finds: by each strategy in turn, best first. */
export function lookups(options: Pick<RouteOptions, 'directory' | 'strategies'>, to: RouteTo): Found[] {
  const { tenant, host, agent } = to;
  if (agent !== undefined) return [foundOfAgent(options, { ...to, agent })];
  const { longestFirst, pools, quarantined } = options.directory.ofTenant(tenant);
  const all: Found[] = [];
  for (const [step, strategy] of options.strategies.entries())
    for (const key of destinationKeys(strategy, host, longestFirst))
      all.push({ step, key, pool: pools.get(key), quarantined: quarantined.get(key) ?? [] });
  return all;
}

/** An agent has few sessions, so they need no index. */
function foundOfAgent({ directory }: Pick<RouteOptions, 'directory'>, to: RouteTo & { readonly agent: string }): Found {
  const { tenant, agent: agentId, instance } = to;
  const pool = new Pool();
  const quarantined: Session[] = [];
  for (const session of directory.ofAgent({ tenant, agentId })) {
    if (instance !== undefined && session.record.instance !== instance) continue;
    if (instance === undefined && session.state.quarantined !== undefined) quarantined.push(session);
    else pool.put(session);
  }
  return { step: 0, key: 'any', pool, quarantined };
}

function* sessionsIn({ pool }: Found): Generator<Session, void> {
  for (const set of pool?.values() ?? []) yield* set;
}

/** Yields what `route` could not rank, for an operator who asks: the last of them are found by a look at all tenants' sessions. */
function* leftOut(options: RouteOptions, to: RouteTo, seen: ReadonlySet<string>): Generator<Routed> {
  const { directory, nextHop, suspects } = options;
  const { tenant, agent, tried } = to;
  const out = (session: Session, { step, key }: Lookup, why: LeftOut['why']): Routed => {
    const { hubId, sessionId } = session.record;
    const reachable = nextHop(hubId) !== undefined;
    const suspected = suspects.has(hubId, tenant) || suspects.has(sessionId, tenant);
    return { session, leftOut: { step, key, why, reachable, suspected } };
  };
  const keys = new Set<string>();
  for (const found of lookups(options, to)) {
    keys.add(found.key);
    for (const session of found.quarantined) yield out(session, found, 'quarantined');
    for (const session of sessionsIn(found)) {
      if (seen.has(idOf(found, session))) continue;
      yield out(session, found, tried?.has(session.record.sessionId) ? 'tried' : 'unreachable');
    }
  }
  if (agent !== undefined) return;
  for (const session of directory.of(tenant)) {
    if (!session.keys.some((key) => keys.has(key))) yield out(session, { step: -1, key: '' }, 'unfound');
  }
}

/**
 * Yields the tiers of a pool, best first: the hub in this process, the own zone, other zones, draining sessions. An agent at the own hub
 * that is far busier than one elsewhere loses its preference.
 */
function* tiersIn(
  { step, key, pool }: Found,
  { directory, zone }: RouteOptions,
  suspected: boolean,
  eligible: Tier['accepts'],
): Generator<Tier, void> {
  if (!pool) return;
  const tier = (place: Rank['place'], sets: Tier['sets'], accepts = eligible): Tier => {
    return { suspected, step, key, place, skipsBusy, sets, accepts };
  };
  const [own, near, draining] = [pool.get(OWN), pool.get(zone), pool.get(DRAINING)];
  let skipsBusy = true;
  if (own) {
    yield tier('own', [own], (session) => session.open <= DIRECTORY.busyTunnels && eligible(session));
    const load = (session: Session) => directory.loadOf(session);
    const least = leastBusy(own, eligible, load);
    if (least < Number.POSITIVE_INFINITY) {
      const lighter = (session: Session) => load(session) * DIRECTORY.busyFactor < least && eligible(session);
      if (near) yield tier('near', [near], lighter);
      yield tier('far', pool.beyond(zone), lighter);
      skipsBusy = false;
      yield tier('own', [own]);
    }
  }
  if (near) yield tier('near', [near]);
  yield tier('far', pool.beyond(zone));
  if (draining) yield tier('draining', [draining]);
}

/** Returns the load of the least loaded busy agent; infinite if no agent is busy. */
function leastBusy(own: Iterable<Session>, eligible: Tier['accepts'], load: (session: Session) => number): number {
  let least = Number.POSITIVE_INFINITY;
  for (const session of own)
    if (session.open > DIRECTORY.busyTunnels && eligible(session)) least = Math.min(least, load(session));
  return least;
}

/** Draws two sessions of a tier at random, and returns the one with fewer open tunnels. */
function drawFrom({ sets, accepts }: Tier, random: () => number): Session | undefined {
  // Both candidates come from one zone. A zone's chance is in proportion to its number of sessions.
  for (const set of sets.length < 2 ? sets : shuffledBySize(sets, random)) {
    const first = set.draw(random, accepts);
    if (!first) continue;
    const second = set.size > 1 ? set.draw(random, (session) => session !== first && accepts(session)) : undefined;
    return second && second.open < first.open ? second : first;
  }
  return undefined;
}

function shuffledBySize(sets: readonly RandomSet<Session>[], random: () => number): readonly RandomSet<Session>[] {
  return sets
    .map((set) => ({ set, rank: random() ** (1 / set.size) }))
    .sort((a, b) => b.rank - a.rank)
    .map(({ set }) => set);
}

/**
 * Hubs and sessions that did not acknowledge a dial in time, or lacked sockets or memory for it. Dials avoid them while there is an
 * alternative, until they answer or `suspectMs` has passed: long before PING finds them silent (`Directory.suspect`). One tenant's silent
 * agents make only its own dials avoid their hub. If sessions of two tenants are silent there, the hub itself may hang, and all dials avoid it.
 */
export class Suspects {
  /** By hub or session, in the order in which they were accused last: until when each tenant avoids it. */
  readonly #until = new Map<string, Map<string, number>>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  get size(): number {
    return this.#until.size;
  }

  /** @param tenant whose dial it was */
  accuse(tenant: string, ...ids: string[]): void {
    const until = this.#now() + DIRECTORY.suspectMs;
    for (const id of ids) {
      const byTenant = this.#until.get(id) ?? new Map<string, number>();
      // Behind those that expire before it.
      byTenant.delete(tenant);
      byTenant.set(tenant, until);
      this.#until.delete(id);
      this.#until.set(id, byTenant);
      this.#prune(id);
    }
    // `has` is never called for an id that does not come back, so remove expired ids here.
    for (const id of this.#until.keys()) if (this.#prune(id)) break;
  }

  clear(...ids: string[]): void {
    for (const id of ids) this.#until.delete(id);
  }

  /** Whether a tenant's dials should avoid a hub or session. */
  has(id: string, tenant: string): boolean {
    const byTenant = this.#prune(id);
    return byTenant !== undefined && (byTenant.size > 1 || byTenant.has(tenant));
  }

  /** Forgets what has expired. @returns what is left */
  #prune(id: string): ReadonlyMap<string, number> | undefined {
    const byTenant = this.#until.get(id);
    if (!byTenant) return undefined;
    const now = this.#now();
    for (const [tenant, until] of byTenant) {
      if (until > now) break;
      byTenant.delete(tenant);
    }
    if (byTenant.size > 0) return byTenant;
    this.#until.delete(id);
    return undefined;
  }
}
