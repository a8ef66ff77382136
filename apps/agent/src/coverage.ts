import { createHash } from 'node:crypto';
import type { HubMember } from '@isthmus/transport';
import type { Uplink } from './uplink.ts';

/** The part of a connection that matters here. */
export type Held = Pick<Uplink, 'serverId' | 'plane' | 'open'>;

/** What an agent knows when it decides whether, and where, to connect next. */
export interface Coverage<U extends Held = Held> {
  readonly agentId: string;
  readonly zone: string;
  /** How many hubs of a plane to keep sessions with. Upstream always uses `all`. */
  readonly sessionCount: number | 'all';
  /** Hubs of the plane, as the hubs report them. Empty before the first report, and without a plane. */
  readonly hubs: readonly HubMember[];
  /** Hubs that are worth an attempt: `hubs`, or if there are none, those of the last report. */
  readonly known: readonly HubMember[];
  /** How many servers without a plane there are, by the last one's count or by leases. */
  readonly serverCount: number;
  /** Connections that are up and stay. */
  readonly uplinks: readonly U[];
}

export interface Assessment<U extends Held = Held> {
  /** How many distinct servers to be connected to. */
  readonly wanted: number;
  /** Hubs of the plane that accept agents and are not connected, best first. */
  readonly candidates: readonly HubMember[];
  /** Those of them that should be connected, in place of `displaced`. */
  readonly better: readonly HubMember[];
  /** Connections to hubs of the plane that should not be connected: first those without tunnels, then the worst. */
  readonly displaced: readonly U[];
}

/**
 * Compares an agent's connections with what they should be. Within a plane, any hub reaches all gateways, so a few hubs are enough: the
 * first by `ranking`. Servers without a plane must all be connected.
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
    // A hub that no hub lists has rank 0: its link is alive, which outranks a registry that does not know it.
    displaced: uplinks
      .filter((uplink) => uplink.plane !== '' && rankOf(uplink) >= wanted)
      .sort((a, b) => Number(a.open > 0) - Number(b.open > 0) || rankOf(b) - rankOf(a)),
  };
}

export function isInPlane(uplinks: readonly Held[]): boolean {
  return uplinks.some(({ plane }) => plane !== '');
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
