import type { RandomSet } from '@isthmus/runtime';
import type { Route } from './placement.ts';

/** Sessions under one key, grouped by preference. */
export interface Pool {
  readonly own: RandomSet<Route>;
  readonly byZone: Map<string, RandomSet<Route>>;
  readonly draining: RandomSet<Route>;
}

/** Sessions between which only chance and load decide. Routes of earlier tiers may be in it again. */
export interface Tier {
  /** Whether it also holds suspects. */
  readonly suspected: boolean;
  /** Index of the strategy that leads to its sessions, and the key under which they are found. */
  readonly step: number;
  readonly key: string;
  readonly place: 'own' | 'near' | 'far' | 'draining';
  /** Without routes that stand behind others because their agents are busy. */
  readonly light: boolean;
  readonly sets: () => readonly RandomSet<Route>[];
  readonly accepts: (route: Route) => boolean;
}

/** How a dial sees a pool. */
export interface PoolView extends Pick<Tier, 'suspected' | 'step' | 'key'> {
  /** The gateway's own zone. */
  readonly zone: string;
  readonly eligible: (route: Route) => boolean;
  /** Tunnels of this gateway that run through the agent of a route, by any hub. */
  readonly load: (route: Route) => number;
}

/**
 * Tunnels of one gateway through a session up to which its agent is never too busy: far from what an agent carries, and far
 * above what differs between agents by chance.
 */
const BUSY = 1000;

/** A busy agent's session at the own hub is passed over for one whose agent carries less than its part in so many. */
const LOPSIDED = 2;

/**
 * The tiers of a pool, best first: the hub in this process, the own zone, other zones, and sessions that drain. An agent that is far
 * busier than one elsewhere loses the preference for this process.
 */
export function* tiersIn({ own, byZone, draining }: Pool, view: PoolView): Generator<Tier> {
  const { suspected, step, key, zone, eligible, load } = view;
  const tier = (place: Tier['place'], light: boolean, sets: Tier['sets'], accepts: Tier['accepts']): Tier => {
    return { suspected, step, key, place, light, sets, accepts };
  };
  const near = byZone.get(zone);
  const isFar = byZone.size > (near ? 1 : 0);
  const far = () => [...byZone].filter(([name]) => name !== zone).map(([, set]) => set);
  let light = true;
  if (own.size > 0)
    yield tier(
      'own',
      light,
      () => [own],
      (route) => route.open <= BUSY && eligible(route),
    );
  const least = leastBusy(own, view);
  if (least < Number.POSITIVE_INFINITY) {
    const lighter = (route: Route) => load(route) * LOPSIDED < least && eligible(route);
    if (near) yield tier('near', light, () => [near], lighter);
    if (isFar) yield tier('far', light, far, lighter);
    light = false;
    yield tier('own', light, () => [own], eligible);
  }
  if (near) yield tier('near', light, () => [near], eligible);
  if (isFar) yield tier('far', light, far, eligible);
  if (draining.size > 0) yield tier('draining', light, () => [draining], eligible);
}

/** The load of the busy agent with the fewest tunnels; infinite if no agent is busy. */
function leastBusy(own: RandomSet<Route>, { eligible, load }: PoolView): number {
  let least = Number.POSITIVE_INFINITY;
  if (own.size === 0) return least;
  for (const route of own) if (route.open > BUSY && eligible(route)) least = Math.min(least, load(route));
  return least;
}

/** Draws from a tier: of two routes drawn at random, the one with fewer open tunnels. */
export function drawFrom({ sets, accepts }: Tier, random: () => number): Route | undefined {
  // Zones count by their sessions: one zone is drawn for the two candidates in proportion to its size.
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
