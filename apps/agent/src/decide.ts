import type { HubMember } from '@isthmus/transport';
import type { AgentOptions } from './agent.ts';
import { type Membership, ranking } from './membership.ts';
import type { Reconnect } from './reconnect.ts';
import { type ConfiguredServer, placeOf, rank, type Target } from './targets.ts';
import { UPKEEP } from './upkeep-defaults.ts';
import type { Uplink } from './uplink.ts';

/** The part of a session that matters here. */
export type Held = Pick<Uplink, 'serverId' | 'plane' | 'open'>;

/** What an agent knows when it decides whether, and where, to connect next. */
export interface Known<U extends Held = Held>
  extends Pick<AgentOptions, 'agentId' | 'zone' | 'sessionCount' | 'syncForever'> {
  /** Sessions that are up and stay. */
  readonly sessions: readonly U[];
  /** How many servers without a plane there are, by the last one's count or by leases. */
  readonly serverCount: number;
  readonly membership: Membership;
  /** Those whose turn is next first. */
  readonly servers: readonly ConfiguredServer[];
  /** Whether it once had as many sessions as it wanted. */
  readonly complete: boolean;
}

export interface Assessment<U extends Held = Held> {
  /** How many distinct servers to be connected to. */
  readonly wanted: number;
  /** Hubs of the plane that accept agents and are not connected, best first. */
  readonly candidates: readonly HubMember[];
  /** Those of them that should be connected, in place of `displaced`. */
  readonly better: readonly HubMember[];
  /** Sessions with hubs of the plane that should not be connected: first those without tunnels, then the worst. */
  readonly displaced: readonly U[];
}

/** What to do now. */
export interface Decision<U extends Held = Held> {
  readonly wanted: number;
  readonly complete: boolean;
  /** Leave these: better hubs have replaced them, and gateways can know of those. */
  readonly retire: readonly U[];
  /** Start connecting there. */
  readonly connect?: Target;
  /** When to decide again unless something happens, in milliseconds. */
  readonly again: number;
}

/** Decides what is missing or misplaced now, and when the next look is worthwhile. Random times are drawn by `reconnect`. */
export function decide<U extends Held>(known: Known<U>, reconnect: Reconnect): Decision<U> {
  const { wanted, candidates, better, displaced } = assess(known);
  const { sessions, membership, syncForever } = known;
  const surplus = membership.current ? Math.max(0, sessions.length - wanted) : 0;
  const retire = displaced.slice(0, surplus);
  const staying = sessions.length - retire.length;
  const missing = wanted - staying;
  const complete = known.complete || (staying > 0 && missing <= 0);
  const decided = { wanted, complete, retire };
  // Within a plane, an agent hears of every hub.
  const seeks = missing <= 0 && syncForever && !isInPlane(sessions);
  if (missing > 0 || seeks) {
    reconnect.plan([]);
    return { ...decided, ...fill({ ...known, complete }, reconnect, missing, seeks ? [] : candidates) };
  }
  reconnect.anew();
  return { ...decided, ...move(known, reconnect, better, displaced.slice(surplus), -missing) };
}

type Step = Pick<Decision, 'connect' | 'again'>;

/** Connects to one more server. */
function fill(known: Known, reconnect: Reconnect, missing: number, hubs: readonly HubMember[]): Step {
  const { sessions, servers, membership, complete } = known;
  const connected = sessions.length > 0;
  // Each server without a plane serves its own callers, who wait for an agent that starts.
  const alone = !connected || (!complete && !isInPlane(sessions));
  const again = reconnect.wait(missing, connected, alone);
  if (again > 0) return { again };
  // Hubs of an old report may be many and all gone.
  const configuredFirst = membership.stale && reconnect.pending.every(({ configured }) => !configured);
  const targets = rank(hubs, servers, reconnect, { connected, configuredFirst });
  const connect = targets.find(({ wait }) => wait <= 0);
  return connect ? { connect, again: UPKEEP.youngAttempt } : { again: Math.min(...targets.map(({ wait }) => wait)) };
}

/** Connects to a better hub whose time has come. */
function move(
  { membership: { away, current }, servers }: Known,
  reconnect: Reconnect,
  better: readonly HubMember[],
  displaced: readonly Held[],
  surplus: number,
): Step {
  // Times that were drawn while nothing may move would all have passed when something may.
  reconnect.plan(displaced.length > 0 && !away ? better : []);
  if (displaced.length === 0 || !current) return { again: Number.POSITIVE_INFINITY };
  const busy = displaced.every(({ open }) => open > 0);
  const hub = better.find((hub) => reconnect.moveWait(hub, busy) <= 0);
  if (!hub) return { again: busy ? UPKEEP.lookEvery : Math.min(...better.map((hub) => reconnect.moveWait(hub, busy))) };
  // One after the other: the last one is done when what it displaced is leaving.
  if (reconnect.pending.length > 0 || surplus > 0) return { again: UPKEEP.lookEvery };
  const place = placeOf(hub);
  const [configured] = servers as [ConfiguredServer];
  const connect = { ...(place === undefined ? { place: configured.place, configured } : { place }), better: hub };
  const again = place === undefined ? configured.wait(reconnect, false) : reconnect.addresses.wait(place);
  return again > 0 ? { again } : { connect, again: UPKEEP.youngAttempt };
}

/**
 * Compares an agent's sessions with what they should be. Within a plane, any hub reaches all gateways, so a few hubs are enough: the
 * first by `ranking`. Servers without a plane must all be connected.
 */
export function assess<U extends Held>(known: Omit<Known<U>, 'servers' | 'complete' | 'syncForever'>): Assessment<U> {
  const { sessionCount, serverCount, sessions, membership } = known;
  const ranked = ranking(known, membership.hubs);
  const connected = new Set(sessions.map(({ serverId }) => serverId));
  const all = membership.candidates === membership.hubs ? ranked : ranking(known, membership.candidates);
  const candidates = all.filter(({ hubId }) => !connected.has(hubId));
  if (!isInPlane(sessions)) return { wanted: Math.max(1, serverCount), candidates, better: [], displaced: [] };
  const live = Math.max(1, ranked.length);
  const wanted = sessionCount === 'all' ? live : Math.min(sessionCount, live);
  const rank = new Map(ranked.map(({ hubId }, index) => [hubId, index]));
  // A hub that no hub lists has rank 0: its link is alive, which outranks a registry that does not know it.
  const rankOf = ({ serverId }: Held) => rank.get(serverId) ?? 0;
  return {
    wanted,
    candidates,
    better: ranked.slice(0, wanted).filter(({ hubId }) => !connected.has(hubId)),
    displaced: sessions
      .filter((session) => session.plane !== '' && rankOf(session) >= wanted)
      .sort((a, b) => Number(a.open > 0) - Number(b.open > 0) || rankOf(b) - rankOf(a)),
  };
}

export function isInPlane(sessions: readonly Held[]): boolean {
  return sessions.some(({ plane }) => plane !== '');
}
