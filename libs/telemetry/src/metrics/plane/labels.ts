import type { PacketWay, PlaneEventMap, Role } from '@isthmus/tunnel';

/** Upstream's `segment` label: which way a packet goes, seen from its proxy server. */
export type Segment = 'from_client' | 'to_client' | 'from_agent' | 'to_agent';

export const SEGMENTS: Readonly<Record<Role, Readonly<Record<PacketWay, Segment>>>> = {
  gateway: { received: 'from_client', sent: 'to_client' },
  hub: { received: 'from_agent', sent: 'to_agent' },
  agent: { received: 'to_agent', sent: 'from_agent' },
};

/** Upstream's `service_method` label: the packet stream that each part of the plane reads. */
export const METHODS = { gateway: 'Proxy', hub: 'Connect', agent: 'Connect' } as const satisfies Record<Role, string>;

/** Upstream's `direction` label of an agent's `server_connection_failure_count`. */
export const SERVER_DIRECTIONS: Readonly<Record<PlaneEventMap['server:failure'][1], string>> = {
  connecting: 'to_server',
  connected: 'from_server',
};
