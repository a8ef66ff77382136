import type { PacketWay, Role, SessionInfo } from '@isthmus/tunnel';
import type { Subscriptions } from '../events.ts';
import type { Count, Families } from './families.ts';

/** Upstream's `segment` label: which way a packet goes, seen from its proxy server. */
type Segment = 'from_client' | 'to_client' | 'from_agent' | 'to_agent';

const SEGMENTS: Readonly<Record<Role, Readonly<Record<PacketWay, Segment>>>> = {
  gateway: { received: 'from_client', sent: 'to_client' },
  hub: { received: 'from_agent', sent: 'to_agent' },
  agent: { received: 'to_agent', sent: 'from_agent' },
};

/**
 * Counts `stream_packets_total` and `stream_errors_total`. They cover only ANP's packets. An HTTP/2 link has none, so the traffic
 * between our hubs and our agents is missing here (`isthmus_tunnel_bytes_total` has all traffic). Like upstream, there is no line for a type
 * of packet that has not been seen.
 */
export function packetMetrics(families: Families): Subscriptions {
  const packets = families.counters(
    'stream_packets_total',
    'Count of packets processed, by segment and packet type (example: from_client, DIAL_REQ)',
    ['packet_type', 'segment'],
  );
  const errors = families.counters(
    'stream_errors_total',
    'Count of gRPC stream errors, by segment, grpc Code, packet type. (example: from_agent, Code.Unavailable, DIAL_RSP)',
    ['code', 'packet_type', 'segment'],
  );
  // Millions come each minute: to count one looks up nothing.
  const seen: Record<Segment, Record<string, Count>> = { from_client: {}, to_client: {}, from_agent: {}, to_agent: {} };
  return {
    packet(role, way, type) {
      const segment = SEGMENTS[role][way];
      seen[segment][type] ??= packets.of({ packet_type: type, segment });
      seen[segment][type].value++;
    },
    'packet:error'(role, code) {
      // Upstream names the packet that it could not send; ours are never known by then.
      errors.of({ code, packet_type: 'Unknown', segment: SEGMENTS[role].received }).value++;
    },
  };
}

const PROTOCOLS: readonly SessionInfo['protocol'][] = ['link', 'packets'];

/** A hub's sessions with agents. */
export function sessionMetrics(families: Families): Subscriptions {
  const sessions = families.gauges(
    'sessions',
    'Sessions of agents at this hub, by protocol: link (HTTP/2) or packets (AgentService.Connect).',
    ['protocol'],
  );
  const opens = families.counters('session_opens_total', 'Sessions that agents opened at this hub, by protocol.', [
    'protocol',
  ]);
  for (const protocol of PROTOCOLS) {
    sessions.of({ protocol });
    opens.of({ protocol });
  }
  return {
    'session:open'({ protocol }) {
      sessions.of({ protocol }).value++;
      opens.of({ protocol }).value++;
    },
    'session:close': ({ protocol }) => sessions.of({ protocol }).value--,
  };
}

/** A gateway's links to hubs. */
export function hubLinkMetrics(families: Families): Subscriptions {
  const opens = families.counter('hub_link_opens_total', 'Links to hubs that this gateway opened.');
  const failures = families.counter('hub_link_failures_total', 'Links to hubs that could not be opened.');
  return {
    'peer:open': () => opens.value++,
    'peer:failure': () => failures.value++,
  };
}
