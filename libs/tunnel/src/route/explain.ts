import ipaddr from 'ipaddr.js';
import type { Destination } from '../dial/destination.ts';
import type { PolicyVerdict } from '../dial/policy.ts';
import { getOrPut } from '../get-or-put.ts';
import type { SessionRecord } from '../replica/records.ts';
import type { Place, Route } from './placement.ts';
import { type RankingOptions, ranking } from './ranking.ts';
import { destinationKeys, prefixLength, type Strategy } from './strategies.ts';
import type { Tier } from './tiers.ts';

/** What decides how a dial is routed. */
export interface ExplainOptions extends RankingOptions {
  readonly strategies: readonly Strategy[];
  readonly zone: string;
  /** What a tenant's policy says about a dial of a caller; undefined for a tenant without one. */
  readonly policy?: (tenant: string, destination: Destination, caller: string) => PolicyVerdict | undefined;
}

/** A session that could take a dial, found under one key. */
export interface Candidate {
  readonly session: SessionRecord;
  /** Open tunnels and pending dials of this gateway through the session. */
  readonly open: number;
  /** As an operator writes it; empty if no strategy finds the session. */
  readonly key: string;
  readonly zone: string;
  readonly draining: boolean;
  /** Why its agent is in quarantine, or undefined. */
  readonly quarantined: string | undefined;
  readonly reachable: boolean;
  readonly suspected: boolean;
  /** `taken`: a dial would use it now. `equal`: just as good. `later`: used once better ones are gone. `not`: never used. */
  readonly standing: 'taken' | 'equal' | 'later' | 'not';
  /** Why it is not the taken one; empty for the taken one. */
  readonly why: string;
}

/** One strategy, and the sessions that it finds. */
export interface ExplainedStep {
  readonly strategy: Strategy;
  readonly keys: readonly { readonly key: string; readonly sessions: number }[];
  /** Best first. */
  readonly candidates: readonly Candidate[];
}

export interface Explanation {
  /** Unset if there is none. A dial that it refuses is not routed. */
  readonly policy?: PolicyVerdict;
  readonly steps: readonly ExplainedStep[];
  /** The tenant's sessions that no strategy finds. */
  readonly others: readonly Candidate[];
  readonly taken: SessionRecord | undefined;
}

/** The most sessions that are listed: over all steps, and of those that no strategy finds. */
const MAX_CANDIDATES = 1000;
const MAX_OTHERS = 100;

/** A dial's tiers, and the rank of each route: the index of the first tier that has it. */
interface Ranks {
  readonly tiers: readonly Tier[];
  /** The index of the first tier with a route; infinite if there is none. A dial takes one of its routes. */
  readonly best: number;
  /** Returns the rank of a route that one step finds under a key. Infinite for a route that no dial would take. */
  of(route: Route, step: number, key: string): number;
}

interface Found {
  readonly place: Place;
  readonly key: string;
  /** Less is better. */
  readonly rank: number;
}

/**
 * Explains how a dial to a destination would be routed now, and why. Dials nothing, and changes nothing.
 * @param caller the caller's name, for rules that name callers
 */
export function explain(options: ExplainOptions, tenant: string, destination: Destination, caller = ''): Explanation {
  const policy = options.policy?.(tenant, destination, caller);
  if (policy?.allowed === false) return { policy, steps: [], others: [], taken: undefined };
  return { ...routes(options, tenant, destination), ...(policy && { policy }) };
}

function routes(options: ExplainOptions, tenant: string, { host }: Destination): Explanation {
  const { directory, strategies, zone } = options;
  // Remember each answer, so that all sessions of a hub are judged by the same state.
  const suspects = { has: once((id) => options.suspects.has(id, tenant)) };
  const asked = { ...options, hub: once(options.hub), suspects };
  const tiers = [...ranking(asked, { tenant, host, strategies, zone, excluded: new Set() })];
  const ranks = ranksIn(tiers);
  const taken = directory.draw(tiers)?.record;
  const judge = judging(asked, ranks, taken);
  const lengths = directory.prefixLengths(tenant);
  const keysOf = strategies.map((strategy) => destinationKeys(strategy, host, lengths));
  const { byKey, others } = placesUnder(new Set(keysOf.flat()), directory.placed(tenant));
  // Reserve one entry for the taken session, in case earlier strategies fill the list.
  let left = MAX_CANDIDATES - 1;
  const steps = strategies.map((strategy, step) => {
    const keys = (keysOf[step] ?? []).map((key) => ({ key, places: byKey.get(key) ?? [] }));
    const found = keys.flatMap(({ key, places }) =>
      places.map((place) => ({ place, key, rank: ranks.of(place.route, step, key) })),
    );
    found.sort((a, b) => (a.rank === b.rank ? 0 : a.rank - b.rank));
    const [first, rest] = apart(found, ({ rank, place }) => rank === ranks.best && place.route.record === taken);
    const shown = rest.slice(0, left);
    left -= shown.length;
    return {
      strategy,
      keys: keys.map(({ key, places }) => ({ key: shownKey(key), sessions: places.length })),
      candidates: [...first, ...shown].map(judge),
    };
  });
  const why = 'its agent names nothing that a strategy looks up for this destination';
  return {
    taken,
    steps,
    others: others.map((place) => ({ ...described(asked, place, ''), standing: 'not', why })),
  };
}

/** Wraps a question about an id so that it is asked only once for each id. */
function once<T>(ask: (id: string) => T): (id: string) => T {
  const answers = new Map<string, { readonly answer: T }>();
  return (id) => getOrPut(answers, id, () => ({ answer: ask(id) })).answer;
}

function ranksIn(tiers: readonly Tier[]): Ranks {
  const found = new Map<string, Map<Route, number>>();
  const idOf = (step: number, key: string) => `${step} ${key}`;
  let best = Number.POSITIVE_INFINITY;
  for (const [rank, { step, key, sets, accepts }] of tiers.entries()) {
    const ranks = getOrPut(found, idOf(step, key), () => new Map<Route, number>());
    for (const route of sets().flatMap((set) => [...set])) {
      if (ranks.has(route) || !accepts(route)) continue;
      ranks.set(route, rank);
      best = Math.min(best, rank);
    }
  }
  return { tiers, best, of: (route, step, key) => found.get(idOf(step, key))?.get(route) ?? Number.POSITIVE_INFINITY };
}

/** Splits places into those under the wanted keys, and a few of the others. In a big plane, most are others. */
function placesUnder(wanted: ReadonlySet<string>, places: Iterable<Place>) {
  const byKey = new Map<string, Place[]>();
  const others: Place[] = [];
  for (const place of places) {
    const keys = place.keys.filter((key) => wanted.has(key));
    for (const key of keys) getOrPut(byKey, key, () => []).push(place);
    if (keys.length === 0 && others.length < MAX_OTHERS) others.push(place);
  }
  return { byKey, others };
}

/** Splits off the taken session, if it is here. The rest keep their order. */
function apart(found: Found[], isTaken: (one: Found) => boolean): [first: Found[], rest: Found[]] {
  const at = found.findIndex(isTaken);
  return at < 0 ? [[], found] : [found.slice(at, at + 1), found.toSpliced(at, 1)];
}

function described({ directory, hub, suspects }: ExplainOptions, { route, zone, draining }: Place, key: string) {
  const { record: session, open } = route;
  const { sessionId, hubId, tenant } = session;
  const quarantined = directory.quarantines.ofSession(session)?.reason;
  const reachable = hub(hubId) !== undefined;
  const suspected = suspects.has(hubId, tenant) || suspects.has(sessionId, tenant);
  return { session, open, key, zone, draining, quarantined, reachable, suspected };
}

/** Returns a function that compares a session with the taken one. */
function judging(options: ExplainOptions, { tiers, best, of }: Ranks, taken: SessionRecord | undefined) {
  return ({ place, key, rank }: Found): Candidate => {
    const found = described(options, place, shownKey(key));
    const { session, quarantined } = found;
    if (quarantined !== undefined) {
      return { ...found, standing: 'not', why: `agent ${session.agentId} is in quarantine: ${quarantined}` };
    }
    const [tier, first] = [tiers[rank], tiers[best]];
    if (!tier || !first) return { ...found, standing: 'not', why: `no link to hub ${session.hubId}` };
    if (rank > best) {
      const foundBefore = of(place.route, first.step, first.key) === best;
      return { ...found, standing: 'later', why: whyLater(tier, first, { ...options, place, foundBefore }) };
    }
    if (session === taken) return { ...found, standing: 'taken', why: '' };
    return { ...found, standing: 'equal', why: 'just as good: chance and fewer open tunnels decide' };
  };
}

interface Later extends Pick<ExplainOptions, 'strategies' | 'zone'> {
  readonly place: Place;
  /** Whether the first tier also has it, under another key. */
  readonly foundBefore: boolean;
}

/** Returns why a tier ranks behind the first one: the most significant difference between the two. */
function whyLater(tier: Tier, first: Tier, { strategies, zone, place, foundBefore }: Later): string {
  if (tier.suspected !== first.suspected) return 'it, or its hub, left a dial without a sign of life a moment ago';
  if (tier.step !== first.step) return `strategy ${strategies[first.step]} comes first, and finds a session`;
  if (tier.key !== first.key)
    return foundBefore ? 'a longer prefix leads to it already' : 'a longer prefix leads to another session';
  if (tier.place === 'draining') return 'it drains';
  const busy = 'its agent carries too much: far more tunnels of this gateway than another';
  if (tier.place === 'own') return busy;
  if (first.place === 'own') return "it is at another hub, and the one in this gateway's own process comes first";
  if (tier.skipsBusy !== first.skipsBusy) return busy;
  return `its hub is in zone ${JSON.stringify(place.zone)}, and this gateway in ${JSON.stringify(zone)}`;
}

/** A key as written in agent identifiers: `10.0.0.0/8`, or a host without the leading `host `. */
function shownKey(key: string): string {
  const prefix = prefixLength(key);
  if (!prefix) return key.replace(/^host /, '');
  const bytes = key
    .slice(key.indexOf(' ') + 1)
    .split('.')
    .map(Number);
  return `${ipaddr.fromByteArray(bytes)}/${prefix.bits}`;
}
