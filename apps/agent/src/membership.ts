import { createHash } from 'node:crypto';
import { type HubMember, type MembershipMessage, TRANSPORT } from '@isthmus/transport';
import type { AgentOptions } from './agent.ts';
import { AGENT } from './defaults.ts';
import type { Uplink } from './uplink.ts';

/** What one link's hub reported. */
export interface Report {
  readonly hubs: ReadonlyMap<string, HubMember>;
  /** Whether the registry answers that hub. Unset until it has reported. */
  readonly current?: boolean;
  /** When it expires unless it is renewed. */
  readonly until: number;
}

/** What the reports of all links together say. */
export interface KnownHubs {
  /** Of the links, or else of the last one that ended. If all reports have expired, they count: a wrong address costs no more than an attempt. */
  readonly hubs: readonly HubMember[];
  /** Whether `hubs` are expired reports. */
  readonly stale: boolean;
  /**
   * Whether the registry answers every hub that this agent is connected to, so that gateways learn of new sessions; or is away for one of them,
   * which says so, or reports nothing any longer. Unset before all have reported.
   */
  readonly registry?: 'answers' | 'away';
}

/** The report of a hub that has not reported yet. */
export function silent(now: number): Report {
  return { hubs: new Map(), until: now + TRANSPORT.membershipTtlMs };
}

/** Returns a report, if there was one, with a later message. Hubs beyond the limit are ignored. */
export function updated(report: Report | undefined, message: MembershipMessage, now: number): Report {
  const whole = message.type === 'membership';
  const hubs = new Map(whole ? [] : report?.hubs);
  for (const hubId of whole ? [] : message.gone) hubs.delete(hubId);
  for (const hub of whole ? message.hubs : message.changed)
    if (hubs.size < AGENT.maxKnown || hubs.has(hub.hubId)) hubs.set(hub.hubId, hub);
  return { hubs, current: message.current, until: now + TRANSPORT.membershipTtlMs };
}

/** @param last the report of the link that ended last, for when no link has reported any hub */
export function membershipOf(reports: readonly Report[], last: Report | undefined, now: number): KnownHubs {
  const holds = ({ until }: Report) => now < until;
  const reported = reports.filter(({ hubs }) => hubs.size > 0);
  const latest = reported.length === 0 && last ? [last] : reported;
  const stale = !latest.some(holds);
  const away = reports.some((report) => report.current === false || !holds(report));
  const answers = reports.length > 0 && reports.every(({ current }) => current);
  return {
    // That a hub drained expires like everything else: it may have restarted.
    hubs: stale
      ? merged(latest).map((hub) => (hub.draining ? { ...hub, draining: false } : hub))
      : merged(latest.filter(holds)),
    stale,
    ...(away ? { registry: 'away' } : answers && { registry: 'answers' }),
  };
}

/** Of two reports about a hub, the later generation counts; within a generation, draining counts. */
function merged(reports: readonly Report[]): HubMember[] {
  const hubs = new Map<string, HubMember>();
  for (const hub of reports.flatMap((report) => [...report.hubs.values()])) {
    const known = hubs.get(hub.hubId);
    const later = !known || hub.generation > known.generation;
    if (later || (hub.generation === known.generation && hub.draining)) hubs.set(hub.hubId, hub);
  }
  return [...hubs.values()];
}

/**
 * Returns the hubs that accept agents, best first for this agent: its own zone, then by rendezvous hashing. So agents spread evenly,
 * and only the agents of a hub move when it starts or stops.
 */
export function ranking(
  { agentId, zone }: { readonly agentId: string; readonly zone: string },
  hubs: readonly HubMember[],
): HubMember[] {
  return hubs
    .filter(({ draining }) => !draining)
    .map((hub) => {
      const hash = createHash('sha256').update(agentId).update('\0').update(hub.hubId).digest();
      return { hub, near: Number(hub.zone === zone), weight: hash.readUIntBE(0, 6) };
    })
    .sort((a, b) => b.near - a.near || b.weight - a.weight)
    .map(({ hub }) => hub);
}

/** The part of a session that matters here. */
export type Held = Pick<Uplink, 'serverId' | 'plane' | 'open' | 'leave'>;

/** What an agent knows when it decides whether, and where, to connect next. */
export interface Known extends Pick<AgentOptions, 'agentId' | 'zone' | 'sessionCount'> {
  /** Sessions that are up and stay. */
  readonly sessions: readonly Held[];
  /** How many servers without a plane there are, by the last one's count or by leases. */
  readonly serverCount: number;
  readonly membership: KnownHubs;
}

/**
 * Says which slots should be filled: how many distinct servers are `wanted`, and of a plane's hubs that are not connected the `candidates`, best
 * first, and those that are `better` than sessions that they should replace, the `displaced`: first those without tunnels, then the worst.
 * Within a plane, any hub reaches all gateways, so a few hubs are enough: the first by `ranking`. Servers without a plane must all be connected.
 */
export function assess(known: Known) {
  const { sessionCount, serverCount, sessions, membership } = known;
  const ranked = ranking(known, membership.hubs);
  const connected = new Set(sessions.map(({ serverId }) => serverId));
  const candidates = ranked.filter(({ hubId }) => !connected.has(hubId));
  if (!isInPlane(sessions)) return { wanted: Math.max(1, serverCount), candidates, better: [], displaced: [] };
  const live = Math.max(1, ranked.length);
  const wanted = sessionCount === 'all' ? live : Math.min(sessionCount, live);
  const rank = new Map(ranked.map(({ hubId }, index) => [hubId, index]));
  // A hub that no hub lists has rank 0: its link is alive, which outranks a registry that does not know it.
  const rankOf = ({ serverId }: Held) => rank.get(serverId) ?? 0;
  const displaced = sessions
    .filter((session) => session.plane !== '' && rankOf(session) >= wanted)
    .sort((a, b) => Number(a.open > 0) - Number(b.open > 0) || rankOf(b) - rankOf(a));
  const better = ranked.slice(0, wanted).filter((hub) => candidates.includes(hub));
  return { wanted, candidates, better, displaced };
}

export function isInPlane(sessions: readonly Held[]): boolean {
  return sessions.some(({ plane }) => plane !== '');
}
