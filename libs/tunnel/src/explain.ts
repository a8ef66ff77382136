import ipaddr from 'ipaddr.js';
import type { Destination } from './destination.ts';
import type { Dial } from './dial.ts';
import type { Directory } from './directory.ts';
import { getOrPut } from './get-or-put.ts';
import type { Place } from './placement.ts';
import { difference, type RankPart, rankOf } from './ranks.ts';
import type { SessionRecord } from './records.ts';
import { destinationKeys, prefixLength, type Strategy } from './strategies.ts';

/** What a dial would be routed by. */
export interface ExplainOptions {
  readonly directory: Directory;
  readonly strategies: readonly Strategy[];
  readonly zone: string;
  readonly hub: (hubId: string) => Dial | undefined;
  /** Whether a hub or session left a dial without a sign of life a moment ago. */
  readonly suspected: (id: string) => boolean;
}

/** A session that could take a dial, found under one key. */
export interface Candidate {
  readonly session: SessionRecord;
  /** Tunnels of this gateway that run through it, dials included. */
  readonly open: number;
  /** As an operator writes it; empty for a session to which no strategy leads. */
  readonly key: string;
  readonly zone: string;
  readonly draining: boolean;
  /** Why its agent is in quarantine, or undefined. */
  readonly quarantined: string | undefined;
  readonly reachable: boolean;
  readonly suspected: boolean;
  /** `taken` by a dial now, `equal` to it but for chance, taken `later` when the better are gone, or `not` at all. */
  readonly standing: 'taken' | 'equal' | 'later' | 'not';
  /** Why it is not taken first; empty for one that is. */
  readonly why: string;
}

/** One strategy, and what it finds. */
export interface ExplainedStep {
  readonly strategy: Strategy;
  readonly keys: readonly { readonly key: string; readonly sessions: number }[];
  /** Best first. */
  readonly candidates: readonly Candidate[];
}

export interface Explanation {
  readonly steps: readonly ExplainedStep[];
  /** The tenant's sessions that no strategy leads to. */
  readonly others: readonly Candidate[];
  readonly taken: SessionRecord | undefined;
}

/** Sessions that are told of: of all steps, and of those that no strategy leads to. */
const MAX_CANDIDATES = 1000;
const MAX_OTHERS = 100;

interface Found extends Omit<Candidate, 'standing' | 'why'> {
  /** Less is better. Infinite for one that is not taken whatever happens to the others. */
  readonly rank: number;
}

/** How a dial to a destination would be routed now, and why not otherwise. Dials nothing, and changes nothing. */
export function explain(options: ExplainOptions, tenant: string, { host }: Destination): Explanation {
  const { directory, strategies, zone } = options;
  const byKey = new Map<string, Place[]>();
  for (const place of directory.placed(tenant)) {
    for (const key of place.keys) getOrPut(byKey, key, () => []).push(place);
  }
  const lengths = lengthsIn(byKey.keys());
  const steps = strategies.map((strategy, step) => {
    const keys = destinationKeys(strategy, host, lengths);
    const found = keys.flatMap((key, order) => {
      const shown = shownKey(key);
      return (byKey.get(key) ?? []).map((place) => look(options, place, shown, [step, order]));
    });
    return { strategy, keys, found: found.sort((a, b) => a.rank - b.rank) };
  });
  const all = steps.flatMap(({ found }) => found);
  const best = all.reduce((least, { rank }) => Math.min(least, rank), Number.POSITIVE_INFINITY);
  const equals = new Set(all.filter(({ rank }) => rank === best && rank < Number.POSITIVE_INFINITY).map(idOf));
  const usable = ({ sessionId }: SessionRecord) => equals.has(sessionId);
  const taken = directory.choose({ tenant, host, strategies, zone, excluded: new Set(), usable })?.record;
  const reached = new Set(all.map(idOf));
  const others = (byKey.get('any') ?? []).filter(({ route }) => !reached.has(route.record.sessionId));
  let left = MAX_CANDIDATES;
  return {
    taken,
    steps: steps.map(({ strategy, keys, found }) => {
      const told = takenFirst(found, taken).slice(0, left);
      left -= told.length;
      return {
        strategy,
        keys: keys.map((key) => ({ key: shownKey(key), sessions: byKey.get(key)?.length ?? 0 })),
        candidates: told.map((one) => judge(one, best, taken, options)),
      };
    }),
    others: others.slice(0, MAX_OTHERS).map((place) => {
      const { rank: _, ...one } = look(options, place, '', [0, 0]);
      return { ...one, standing: 'not', why: 'its agent names nothing that a strategy looks up for this destination' };
    }),
  };
}

function idOf({ session }: Found): string {
  return session.sessionId;
}

/** Of those that are just as good, so that it is told however many there are. */
function takenFirst(found: Found[], taken: SessionRecord | undefined): Found[] {
  const at = found.findIndex(({ session }) => session.sessionId === taken?.sessionId);
  const [one] = at > 0 && found[at]?.rank === found[0]?.rank ? found.splice(at, 1) : [];
  return one ? [one, ...found] : found;
}

function look(
  { directory, zone: ownZone, hub, suspected }: ExplainOptions,
  { route, zone, draining }: Place,
  key: string,
  [step, order]: readonly [step: number, order: number],
): Found {
  const { record: session, open } = route;
  const { sessionId, hubId } = session;
  const quarantined = directory.quarantineOf(session)?.reason;
  const reachable = hub(hubId) !== undefined;
  const isSuspected = suspected(hubId) || suspected(sessionId);
  // A session that drains stands behind all others, whatever its zone.
  const far = !draining && zone !== ownZone;
  const out = !reachable || quarantined !== undefined;
  return {
    ...{ session, open, key, zone, draining, quarantined, reachable, suspected: isSuspected },
    rank: out ? Number.POSITIVE_INFINITY : rankOf([Number(isSuspected), step, order, Number(draining), Number(far)]),
  };
}

function judge(
  { rank, ...found }: Found,
  best: number,
  taken: SessionRecord | undefined,
  options: ExplainOptions,
): Candidate {
  const { quarantined, reachable, session } = found;
  if (quarantined !== undefined) {
    return { ...found, standing: 'not', why: `agent ${session.agentId} is in quarantine: ${quarantined}` };
  }
  if (!reachable) return { ...found, standing: 'not', why: `no link to hub ${session.hubId}` };
  const behind = difference(rank, best);
  if (behind) return { ...found, standing: 'later', why: whyLater(behind, found.zone, options) };
  if (session.sessionId === taken?.sessionId) return { ...found, standing: 'taken', why: '' };
  return { ...found, standing: 'equal', why: 'just as good: chance and fewer open tunnels decide' };
}

function whyLater(
  [part, value]: readonly [RankPart, number],
  zone: string,
  { strategies, zone: ownZone }: ExplainOptions,
): string {
  switch (part) {
    case 'suspected':
      return 'it, or its hub, left a dial without a sign of life a moment ago';
    case 'strategy':
      return `strategy ${strategies[value]} comes first, and finds a session`;
    case 'key':
      return 'a longer prefix leads to another session';
    case 'draining':
      return 'it drains';
    case 'zone':
      return `its hub is in zone ${JSON.stringify(zone)}, and this gateway in ${JSON.stringify(ownZone)}`;
  }
}

/** The prefix lengths that stand in keys, longest first. */
function lengthsIn(keys: Iterable<string>): Record<4 | 6, number[]> {
  const lengths = { 4: new Set<number>(), 6: new Set<number>() };
  for (const key of keys) {
    const prefix = prefixLength(key);
    if (prefix) lengths[prefix.family].add(prefix.bits);
  }
  const longestFirst = (set: Set<number>) => [...set].sort((a, b) => b - a);
  return { 4: longestFirst(lengths[4]), 6: longestFirst(lengths[6]) };
}

/** A key as it stands in agent identifiers: `10.0.0.0/8`, a host without the word. */
function shownKey(key: string): string {
  const prefix = prefixLength(key);
  if (!prefix) return key.replace(/^host /, '');
  const bytes = key
    .slice(key.indexOf(' ') + 1)
    .split('.')
    .map(Number);
  return `${ipaddr.fromByteArray(bytes)}/${prefix.bits}`;
}
