import { createHash } from 'node:crypto';
import type { HubMember } from '@isthmus/transport';
import type { Uplink } from './uplink.ts';

/** A connection, as far as these questions go. */
export type Held = Pick<Uplink, 'serverId' | 'plane' | 'open'>;

/** What an agent knows when it decides whether, and where, to connect next. */
export interface Coverage<U extends Held = Held> {
  readonly agentId: string;
  readonly zone: string;
  /** How many hubs of a plane to hold sessions to; upstream's way is `all`. */
  readonly sessionCount: number | 'all';
  /** Hubs of the plane, as they told; empty before that, and without a plane. */
  readonly hubs: readonly HubMember[];
  /** Hubs that may be worth an attempt: `hubs`, or when there are none, those that were told of before. */
  readonly known: readonly HubMember[];
  /** Servers that share no plane: how many there are, by the last one's word or by leases. */
  readonly serverCount: number;
  /** Connections that are up and stay. */
  readonly uplinks: readonly U[];
}

export interface Assessment<U extends Held = Held> {
  /** How many distinct servers to be connected to. */
  readonly wanted: number;
  /** Hubs of the plane that take agents and are not connected to, best first. */
  readonly candidates: readonly HubMember[];
  /** Those of them that belong among the connected ones, in place of `displaced`. */
  readonly better: readonly HubMember[];
  /** Connections to hubs of the plane that do not belong there: first those that carry nothing, then the worst. */
  readonly displaced: readonly U[];
}

/**
 * Compares what an agent is connected to with what it should be. Within a plane any hub reaches all gateways, so a few do:
 * the first by `ranking`. Servers that share nothing must each be reached.
 */
export function assess<U extends Held>(coverage: Coverage<U>): Assessment<U> {
  const { sessionCount, serverCount, uplinks } = coverage;
  const ranked = ranking(coverage, coverage.hubs);
  const connected = new Set(uplinks.map(({ serverId }) => serverId));
  const known = coverage.known === coverage.hubs ? ranked : ranking(coverage, coverage.known);
  const candidates = known.filter(({ hubId }) => !connected.has(hubId));
  if (!isInPlane(uplinks)) return { wanted: Math.max(1, serverCount), candidates, better: [], displaced: [] };
  const live = Math.max(1, ranked.length);
  const wanted = sessionCount === 'all' ? live : Math.min(sessionCount, live);
  const rank = new Map(ranked.map(({ hubId }, index) => [hubId, index]));
  const rankOf = ({ serverId }: Held) => rank.get(serverId) ?? 0;
  return {
    wanted,
    candidates,
    better: ranked.slice(0, wanted).filter(({ hubId }) => !connected.has(hubId)),
    // A hub that nobody lists has rank 0: its link lives, and outranks a registry that does not know it.
    displaced: uplinks
      .filter((uplink) => uplink.plane !== '' && rankOf(uplink) >= wanted)
      .sort((a, b) => Number(a.open > 0) - Number(b.open > 0) || rankOf(b) - rankOf(a)),
  };
}

export function isInPlane(uplinks: readonly Held[]): boolean {
  return uplinks.some(({ plane }) => plane !== '');
}

/**
 * The hubs that take agents, best first for this one: its own zone, then by rendezvous hashing, so that agents spread evenly
 * and a hub that comes or goes moves only its own share.
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

/** Agents ask for their hubs' order whenever something happens, and what a hub told stays one object until it tells anew. */
const weights = new WeakMap<HubMember, { readonly agentId: string; readonly weight: number }>();

function weight(agentId: string, hub: HubMember): number {
  const known = weights.get(hub);
  if (known?.agentId === agentId) return known.weight;
  const digest = createHash('sha256').update(agentId).update('\0').update(hub.hubId).digest();
  const weight = digest.readUIntBE(0, 6);
  weights.set(hub, { agentId, weight });
  return weight;
}
