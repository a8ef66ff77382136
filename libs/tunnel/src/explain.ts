import ipaddr from 'ipaddr.js';
import type { Destination } from './destination.ts';
import type { Dial } from './dial.ts';
import type { Directory } from './directory.ts';
import { getOrPut } from './get-or-put.ts';
import { BUSY, type Place, type Route } from './placement.ts';
import { difference, type RankPart, rankOf } from './ranks.ts';
import type { SessionRecord } from './records.ts';
import { destinationKeys, prefixLength, type Strategy } from './strategies.ts';

/** What decides how a dial is routed. */
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
  /** As an operator writes it; empty for a session that no strategy leads to. */
  readonly key: string;
  readonly zone: string;
  readonly draining: boolean;
  /** Why its agent is in quarantine, or undefined. */
  readonly quarantined: string | undefined;
  readonly reachable: boolean;
  readonly suspected: boolean;
  /** `taken` by a dial now, `equal` to the taken one but for chance, taken `later` once the better are gone, or `not` at all. */
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

/** How many sessions are listed: over all steps, and of those that no strategy leads to. */
const MAX_CANDIDATES = 1000;
const MAX_OTHERS = 100;

interface Found extends Omit<Candidate, 'standing' | 'why'> {
  /** Less is better. Infinite for a session that is not taken whatever happens to the others. */
  readonly rank: number;
}

/** Explains how a dial to a destination would be routed now, and why not otherwise. Dials nothing, and changes nothing. */
export function explain(options: ExplainOptions, tenant: string, { host }: Destination): Explanation {
  const { directory, strategies, zone } = options;
  const look = lookWith(options, (own) => isTooBusy(own, options, tenant, host));
  const lengths = directory.prefixLengths(tenant);
  const keysOf = strategies.map((strategy) => destinationKeys(strategy, host, lengths));
  const { byKey, others } = placesUnder(new Set(keysOf.flat()), directory.placed(tenant));
  const steps = strategies.map((strategy, step) => {
    const keys = keysOf[step] ?? [];
    const found = keys.flatMap((key, order) => {
      const shown = shownKey(key);
      return (byKey.get(key) ?? []).map((place) => look(place, shown, [step, order]));
    });
    return { strategy, keys, found: found.sort((a, b) => a.rank - b.rank) };
  });
  const all = steps.flatMap(({ found }) => found);
  const best = all.reduce((least, { rank }) => Math.min(least, rank), Number.POSITIVE_INFINITY);
  const equals = new Set(all.filter(({ rank }) => rank === best && rank < Number.POSITIVE_INFINITY).map(idOf));
  const usable = ({ sessionId }: SessionRecord) => equals.has(sessionId);
  const taken = directory.choose({ tenant, host, strategies, zone, excluded: new Set(), usable })?.record;
  const isTaken = ({ rank, session }: Found) => rank === best && session.sessionId === taken?.sessionId;
  // Reserve one entry for the taken session, however many sessions the strategies before its own find.
  let left = MAX_CANDIDATES - 1;
  return {
    taken,
    steps: steps.map(({ strategy, keys, found }) => {
      const [first, rest] = apart(found, isTaken);
      const told = rest.slice(0, left);
      left -= told.length;
      return {
        strategy,
        keys: keys.map((key) => ({ key: shownKey(key), sessions: byKey.get(key)?.length ?? 0 })),
        candidates: [...first, ...told].map((one) => judge(one, { best, equals, taken }, options)),
      };
    }),
    others: others.map((place) => {
      const { rank: _, ...one } = look(place, '', [0, 0]);
      return { ...one, standing: 'not', why: 'its agent names nothing that a strategy looks up for this destination' };
    }),
  };
}

/** Splits places into those under the wanted keys and a few of the others: in a big plane, most are others. */
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

function idOf({ session }: Found): string {
  return session.sessionId;
}

/** Splits off the taken session, if it is here. The rest keep their order. */
function apart(found: Found[], isTaken: (one: Found) => boolean): [first: Found[], rest: Found[]] {
  const at = found.findIndex(isTaken);
  return at < 0 ? [[], found] : [found.slice(at, at + 1), found.toSpliced(at, 1)];
}

/** Whether a dial would rather take another agent's session than this one at the own hub. */
function isTooBusy(own: Route, options: ExplainOptions, tenant: string, host: string): boolean {
  const { directory, strategies, zone, hub, suspected } = options;
  if (own.open <= BUSY) return false;
  const usable = ({ sessionId, hubId, agentId }: SessionRecord) =>
    hubId !== directory.ownHub &&
    agentId !== own.record.agentId &&
    hub(hubId) !== undefined &&
    !suspected(hubId) &&
    !suspected(sessionId);
  const other = directory.choose({ tenant, host, strategies, zone, excluded: new Set(), usable });
  return other !== undefined && directory.isTooBusy(own, other);
}

/** A look at a place that asks for the state of each hub once. */
function lookWith({ directory, zone: ownZone, hub, suspected }: ExplainOptions, isTooBusy: (own: Route) => boolean) {
  const hubs = new Map<string, { readonly reachable: boolean; readonly silent: boolean }>();
  return (
    { route, own, zone, draining }: Place,
    key: string,
    [step, order]: readonly [step: number, order: number],
  ): Found => {
    const { record: session, open } = route;
    const { sessionId, hubId } = session;
    const quarantined = directory.quarantineOf(session)?.reason;
    const state = () => ({ reachable: hub(hubId) !== undefined, silent: suspected(hubId) });
    const { reachable, silent } = getOrPut(hubs, hubId, state);
    const isSuspected = silent || suspected(sessionId);
    // A session that drains stands behind all others, whatever its hub and zone.
    const other = !draining && !own;
    const far = other && zone !== ownZone;
    const busy = own && isTooBusy(route);
    const standing = [draining, busy, other, far].map(Number);
    const out = !reachable || quarantined !== undefined;
    return {
      ...{ session, open, key, zone, draining, quarantined, reachable, suspected: isSuspected },
      rank: out ? Number.POSITIVE_INFINITY : rankOf([Number(isSuspected), step, order, ...standing]),
    };
  };
}

/** What a dial would choose from now, and what it would choose. */
interface Choosing {
  readonly best: number;
  readonly equals: ReadonlySet<string>;
  readonly taken: SessionRecord | undefined;
}

function judge({ rank, ...found }: Found, { best, equals, taken }: Choosing, options: ExplainOptions): Candidate {
  const { quarantined, reachable, session } = found;
  if (quarantined !== undefined) {
    return { ...found, standing: 'not', why: `agent ${session.agentId} is in quarantine: ${quarantined}` };
  }
  if (!reachable) return { ...found, standing: 'not', why: `no link to hub ${session.hubId}` };
  const behind = difference(rank, best);
  if (behind)
    return { ...found, standing: 'later', why: whyLater(behind, found.zone, equals.has(session.sessionId), options) };
  if (session.sessionId === taken?.sessionId) return { ...found, standing: 'taken', why: '' };
  return { ...found, standing: 'equal', why: 'just as good: chance and fewer open tunnels decide' };
}

function whyLater(
  [part, value]: readonly [RankPart, number],
  zone: string,
  foundBefore: boolean,
  { strategies, zone: ownZone }: ExplainOptions,
): string {
  switch (part) {
    case 'suspected':
      return 'it, or its hub, left a dial without a sign of life a moment ago';
    case 'strategy':
      return `strategy ${strategies[value]} comes first, and finds a session`;
    case 'key':
      return foundBefore ? 'a longer prefix leads to it already' : 'a longer prefix leads to another session';
    case 'draining':
      return 'it drains';
    case 'busy':
      return 'its agent carries too much: far more tunnels of this gateway than another';
    case 'process':
      return "it is at another hub, and the one in this gateway's own process comes first";
    case 'zone':
      return `its hub is in zone ${JSON.stringify(zone)}, and this gateway in ${JSON.stringify(ownZone)}`;
  }
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
