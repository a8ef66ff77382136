import { createHash } from 'node:crypto';
import { type HubMember, MEMBERSHIP_TTL, type MembershipMessage } from '@isthmus/transport';
import { UPKEEP } from './upkeep-defaults.ts';

/** What one link's hub reported. */
export interface Report {
  readonly hubs: ReadonlyMap<string, HubMember>;
  /** Whether the registry answers that hub. Unset until it has reported. */
  readonly current?: boolean;
  /** When it expires unless it is renewed. */
  readonly until: number;
}

/** What the reports of all links together say. */
export interface Membership {
  /** All hubs whose reports have not expired. */
  readonly hubs: readonly HubMember[];
  /**
   * Hubs that are worth an attempt: `hubs`, or else those of the last report, however old. A wrong address costs an attempt, and the
   * configured server alone may be the one that died.
   */
  readonly candidates: readonly HubMember[];
  /** Whether `candidates` are an expired report. */
  readonly stale: boolean;
  /** Whether the registry answers every hub that this agent is connected to. Gateways then learn of new sessions. */
  readonly current: boolean;
  /** Whether a hub reported that the registry does not answer it, or reports nothing any longer. */
  readonly away: boolean;
}

/** The report of a hub that has not reported yet. */
export function silent(now: number): Report {
  return { hubs: new Map(), until: now + MEMBERSHIP_TTL };
}

/** Returns a report, if there was one, with a later message. Hubs beyond the limit are ignored. */
export function updated(report: Report | undefined, message: MembershipMessage, now: number): Report {
  const whole = message.type === 'membership';
  const hubs = new Map(whole ? [] : report?.hubs);
  for (const hubId of whole ? [] : message.gone) hubs.delete(hubId);
  for (const hub of whole ? message.hubs : message.changed)
    if (hubs.size < UPKEEP.maxKnown || hubs.has(hub.hubId)) hubs.set(hub.hubId, hub);
  return { hubs, current: message.current, until: now + MEMBERSHIP_TTL };
}

/** @param last the report of the link that ended last, for when no link has reported any hub */
export function membershipOf(reports: readonly Report[], last: Report | undefined, now: number): Membership {
  const holds = ({ until }: Report) => now < until;
  const hubs = merged(reports.filter(holds));
  const reported = reports.filter((report) => report.hubs.size > 0);
  const latest = reported.length === 0 && last ? [last] : reported;
  const stale = hubs.length === 0 && !latest.some(holds);
  // That a hub drained expires like everything else: it may have restarted.
  const known = () => merged(latest).map((hub) => (stale ? { ...hub, draining: false } : hub));
  return {
    hubs,
    candidates: hubs.length > 0 ? hubs : known(),
    stale,
    current: reports.length > 0 && reports.every((report) => report.current === true && holds(report)),
    away: reports.some((report) => report.current === false || !holds(report)),
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
    .map((hub) => ({ hub, near: Number(hub.zone === zone), weight: weight(agentId, hub) }))
    .sort((a, b) => b.near - a.near || b.weight - a.weight)
    .map(({ hub }) => hub);
}

/** Agents need the order of their hubs at every event, and a hub's report stays the same object until the next one. */
const weights = new WeakMap<HubMember, { readonly agentId: string; readonly weight: number }>();

function weight(agentId: string, hub: HubMember): number {
  const known = weights.get(hub);
  if (known?.agentId === agentId) return known.weight;
  const digest = createHash('sha256').update(agentId).update('\0').update(hub.hubId).digest();
  const weight = digest.readUIntBE(0, 6);
  weights.set(hub, { agentId, weight });
  return weight;
}
