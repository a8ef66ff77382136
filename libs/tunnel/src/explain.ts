import ipaddr from 'ipaddr.js';
import type { Destination } from './destination.ts';
import type { Dial } from './dial.ts';
import type { Directory } from './directory.ts';
import { getOrPut } from './get-or-put.ts';
import type { SessionRecord } from './records.ts';
import { destinationKeys, prefixLength, type Strategy, sessionKeys } from './strategies.ts';

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

/** How a session compares, the first difference deciding; see `Attempts` and `Placement.choose`. Less is better. */
type Rank = readonly [suspected: number, strategy: number, key: number, draining: number, zone: number];

interface Found extends Omit<Candidate, 'standing' | 'why'> {
  /** Undefined for one that is not taken whatever happens to the others. */
  readonly rank: Rank | undefined;
}

/** How a dial to a destination would be routed now, and why not otherwise. Dials nothing, and changes nothing. */
export function explain(options: ExplainOptions, tenant: string, { host }: Destination): Explanation {
  const { directory, strategies, zone } = options;
  const byKey = new Map<string, SessionRecord[]>();
  for (const session of directory.sessions()) {
    if (session.tenant !== tenant) continue;
    for (const key of sessionKeys(session.identifiers)) getOrPut(byKey, key, () => []).push(session);
  }
  const lengths = lengthsIn(byKey.keys());
  const found = strategies.map((strategy, step) => {
    const keys = destinationKeys(strategy, host, lengths);
    const here = keys.flatMap((key, order) =>
      (byKey.get(key) ?? []).map((session) => look(options, session, shownKey(key), step, order)),
    );
    return { strategy, keys, here };
  });
  const all = found.flatMap(({ here }) => here);
  const best = bestOf(all);
  const equals = new Set(all.filter(({ rank }) => best && rank && compare(rank, best) === 0).map(idOf));
  const usable = ({ sessionId }: SessionRecord) => equals.has(sessionId);
  const taken = directory.choose({ tenant, host, strategies, zone, excluded: new Set(), usable })?.record;
  const judged = (one: Found): Candidate => judge(one, best, taken, options);
  const reached = new Set(all.map(idOf));
  const unreached = (byKey.get('any') ?? []).filter(({ sessionId }) => !reached.has(sessionId));
  return {
    taken,
    steps: found.map(({ strategy, keys, here }) => ({
      strategy,
      keys: keys.map((key) => ({ key: shownKey(key), sessions: byKey.get(key)?.length ?? 0 })),
      candidates: here.sort(byRank).map(judged),
    })),
    others: unreached.map((session) => {
      const { rank: _, ...one } = look(options, session, '', 0, 0);
      return { ...one, standing: 'not', why: 'its agent names nothing that a strategy looks up for this destination' };
    }),
  };
}

function idOf({ session }: Found): string {
  return session.sessionId;
}

function look(
  { directory, zone: ownZone, hub, suspected }: ExplainOptions,
  session: SessionRecord,
  key: string,
  step: number,
  order: number,
): Found {
  const { sessionId, hubId } = session;
  const record = directory.hub(hubId);
  const zone = record?.zone ?? '';
  const draining = session.draining || (record?.draining ?? false);
  const quarantined = directory.quarantineOf(session)?.reason;
  const reachable = hub(hubId) !== undefined;
  const isSuspected = suspected(hubId) || suspected(sessionId);
  // A session that drains stands behind all others, whatever its zone.
  const far = draining || zone === ownZone ? 0 : 1;
  const rank: Rank = [Number(isSuspected), step, order, Number(draining), far];
  const out = !reachable || quarantined !== undefined;
  return {
    ...{ session, key, zone, draining, quarantined, reachable, suspected: isSuspected },
    rank: out ? undefined : rank,
  };
}

function judge(
  { rank, ...found }: Found,
  best: Rank | undefined,
  taken: SessionRecord | undefined,
  { zone, strategies }: ExplainOptions,
): Candidate {
  const { quarantined, reachable, session } = found;
  if (quarantined !== undefined) {
    return { ...found, standing: 'not', why: `agent ${session.agentId} is in quarantine: ${quarantined}` };
  }
  if (!reachable) return { ...found, standing: 'not', why: `no link to hub ${session.hubId}` };
  const behind = rank && best ? rank.findIndex((value, index) => value !== best[index]) : -1;
  if (behind >= 0 && best) {
    const reasons = [
      'it, or its hub, left a dial without a sign of life a moment ago',
      `strategy ${strategies[best[1]]} comes first, and finds a session`,
      'a longer prefix leads to another session',
      'it drains',
      `its hub is in zone ${JSON.stringify(found.zone)}, and this gateway in ${JSON.stringify(zone)}`,
    ];
    return { ...found, standing: 'later', why: reasons[behind] as string };
  }
  if (session.sessionId === taken?.sessionId) return { ...found, standing: 'taken', why: '' };
  return { ...found, standing: 'equal', why: 'just as good: chance and fewer open tunnels decide' };
}

function bestOf(all: readonly Found[]): Rank | undefined {
  let best: Rank | undefined;
  for (const { rank } of all) if (rank && (!best || compare(rank, best) < 0)) best = rank;
  return best;
}

function byRank(a: Found, b: Found): number {
  if (a.rank && b.rank) return compare(a.rank, b.rank);
  return Number(a.rank === undefined) - Number(b.rank === undefined);
}

function compare(a: Rank, b: Rank): number {
  for (const [index, value] of a.entries()) {
    const difference = value - (b[index] as number);
    if (difference !== 0) return difference;
  }
  return 0;
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
