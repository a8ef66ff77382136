import { createHash } from 'node:crypto';
import type { HubMember } from '@isthmus/transport';
import type { ServerAddress, Uplink } from './uplink.ts';

/** What an agent knows when it decides whether, and where, to connect next. */
export interface Coverage {
  readonly agentId: string;
  readonly zone: string;
  /** How many hubs of a plane to hold sessions to; upstream's way is `all`. */
  readonly sessionCount: number | 'all';
  /** Hubs of the plane, as one of them told; empty before that, and without a plane. */
  readonly members: readonly HubMember[];
  /** Servers that share no plane: how many there are, by the last one's word or by leases. */
  readonly serverCount: number;
  /** Connections that are up and stay. */
  readonly uplinks: readonly Pick<Uplink, 'serverId' | 'plane'>[];
}

/**
 * How many distinct servers to be connected to. Within a plane any hub reaches all gateways, so a few do; servers that share
 * nothing must each be reached.
 */
export function wanted({ sessionCount, members, serverCount, uplinks }: Coverage): number {
  if (!uplinks.some(({ plane }) => plane !== '')) return Math.max(1, serverCount);
  const live = Math.max(1, members.filter(({ draining }) => !draining).length);
  return sessionCount === 'all' ? live : Math.min(sessionCount, live);
}

/**
 * The plane's hubs that are worth connecting to, best first: the own zone, then by rendezvous hashing, so that agents spread
 * evenly and a hub that comes or goes moves only its own share.
 */
export function candidates({ agentId, zone, members, uplinks }: Coverage): ServerAddress[] {
  const connected = new Set(uplinks.map(({ serverId }) => serverId));
  return members
    .filter((hub) => hub.address !== '' && !hub.draining && !connected.has(hub.hubId))
    .map((hub) => ({ hub, near: Number(hub.zone === zone), weight: weight(agentId, hub.hubId) }))
    .sort((a, b) => b.near - a.near || b.weight - a.weight)
    .map(({ hub }) => parseAddress(hub.address));
}

function weight(agentId: string, hubId: string): number {
  return createHash('sha256').update(agentId).update('\0').update(hubId).digest().readUIntBE(0, 6);
}

function parseAddress(text: string): ServerAddress {
  const { hostname, port } = new URL(`tcp://${text}`);
  return { address: hostname.replace(/^\[|\]$/g, ''), port: Number(port) };
}
