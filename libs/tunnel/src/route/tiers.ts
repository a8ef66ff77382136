import type { RandomSet } from '@isthmus/runtime';
import type { Route, RouteState } from './placement.ts';

const OWN = Symbol('own');
const DRAINING = Symbol('draining');

/** A part of a pool: the zone of the sessions' hubs, `OWN` or `DRAINING`. Agents have zones too, but no gateway knows them. */
type Part = string | typeof OWN | typeof DRAINING;

/** Sessions under one key, grouped by preference. There may be a pool for each session, so it has no empty part. */
export type Pool = Map<Part, RandomSet<Route>>;

/** Returns the part of a pool to which a session belongs. */
export function partOf({ draining, own, zone }: RouteState): Part {
  if (draining) return DRAINING;
  return own ? OWN : zone;
}

/** Sessions of equal preference: only chance and load decide between them. It may repeat routes of earlier tiers. */
export interface Tier {
  /** Whether it also holds suspects. */
  readonly suspected: boolean;
  /** Index of the strategy that finds its sessions, and the key under which they are found. */
  readonly step: number;
  readonly key: string;
  readonly place: 'own' | 'near' | 'far' | 'draining';
  /** Whether neither it nor a tier before it has a busy agent of the own hub. */
  readonly skipsBusy: boolean;
  readonly sets: () => readonly RandomSet<Route>[];
  readonly accepts: (route: Route) => boolean;
}

/** How a dial sees a pool. */
export interface PoolView extends Pick<Tier, 'suspected' | 'step' | 'key'> {
  /** The gateway's own zone. */
  readonly zone: string;
  readonly eligible: (route: Route) => boolean;
  /** Returns the open tunnels and pending dials of this gateway through a route's agent, over all hubs. */
  readonly load: (route: Route) => number;
}

/**
 * Up to this many tunnels of one gateway through a session, its agent is never too busy. That is far less than an agent can carry, and
 * far more than agents differ by chance.
 */
const BUSY_TUNNELS = 1000;

/** A session of a busy agent at the own hub is passed over for one whose agent carries less than 1/LOPSIDED_FACTOR of its load. */
const LOPSIDED_FACTOR = 2;

/**
 * Yields the tiers of a pool, best first: the hub in this process, the own zone, other zones, draining sessions. An agent at the own hub
 * that is far busier than one elsewhere loses its preference.
 */
export function* tiersIn(pool: Pool, view: PoolView): Generator<Tier> {
  const { suspected, step, key, zone, eligible, load } = view;
  const tier = (place: Tier['place'], skipsBusy: boolean, sets: Tier['sets'], accepts: Tier['accepts']): Tier => {
    return { suspected, step, key, place, skipsBusy, sets, accepts };
  };
  const own = pool.get(OWN);
  const near = pool.get(zone);
  const draining = pool.get(DRAINING);
  const isFar = pool.size > (own ? 1 : 0) + (near ? 1 : 0) + (draining ? 1 : 0);
  const far = () => [...pool.values()].filter((set) => set !== own && set !== near && set !== draining);
  let skipsBusy = true;
  if (own) {
    const idle = (route: Route) => route.open <= BUSY_TUNNELS && eligible(route);
    yield tier('own', skipsBusy, () => [own], idle);
    const least = leastBusy(own, view);
    if (least < Number.POSITIVE_INFINITY) {
      const lighter = (route: Route) => load(route) * LOPSIDED_FACTOR < least && eligible(route);
      if (near) yield tier('near', skipsBusy, () => [near], lighter);
      if (isFar) yield tier('far', skipsBusy, far, lighter);
      skipsBusy = false;
      yield tier('own', skipsBusy, () => [own], eligible);
    }
  }
  if (near) yield tier('near', skipsBusy, () => [near], eligible);
  if (isFar) yield tier('far', skipsBusy, far, eligible);
  if (draining) yield tier('draining', skipsBusy, () => [draining], eligible);
}

/** Returns the load of the least loaded busy agent; infinite if no agent is busy. */
function leastBusy(own: RandomSet<Route>, { eligible, load }: PoolView): number {
  let least = Number.POSITIVE_INFINITY;
  for (const route of own) if (route.open > BUSY_TUNNELS && eligible(route)) least = Math.min(least, load(route));
  return least;
}

/** Draws two routes of a tier at random, and returns the one with fewer open tunnels. */
export function drawFrom({ sets, accepts }: Tier, random: () => number): Route | undefined {
  // Both candidates come from one zone. A zone's chance is in proportion to its number of sessions.
  for (const set of shuffledBySize(sets(), random)) {
    const first = set.draw(random, accepts);
    if (!first) continue;
    const second = set.size > 1 ? set.draw(random, (route) => route !== first && accepts(route)) : undefined;
    return second && second.open < first.open ? second : first;
  }
  return undefined;
}

function shuffledBySize(sets: readonly RandomSet<Route>[], random: () => number): readonly RandomSet<Route>[] {
  if (sets.length < 2) return sets;
  return sets
    .map((set) => ({ set, rank: random() ** (1 / set.size) }))
    .sort((a, b) => b.rank - a.rank)
    .map(({ set }) => set);
}
