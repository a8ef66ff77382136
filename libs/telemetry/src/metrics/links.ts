import type { PacketWay, Role, SessionInfo } from '@isthmus/tunnel';
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
export function packetMetrics(families: Families): void {
  const packets = families.counter(
    'stream_packets_total{packet_type,segment}',
    'Count of packets processed, by segment and packet type (example: from_client, DIAL_REQ)',
  );
  const errors = families.counter(
    'stream_errors_total{code,packet_type,segment}',
    'Count of gRPC stream errors, by segment, grpc Code, packet type. (example: from_agent, Code.Unavailable, DIAL_RSP)',
  );
  // Millions come each minute: to count one looks up nothing.
  const seen: Record<Segment, Record<string, Count>> = { from_client: {}, to_client: {}, from_agent: {}, to_agent: {} };
  families.on({
    packet(role, way, type) {
      const segment = SEGMENTS[role][way];
      seen[segment][type] ??= packets.of({ packet_type: type, segment });
      seen[segment][type].value++;
    },
    'packet:error'(role, code) {
      // Upstream names the packet that it could not send; ours are never known by then.
      errors.of({ code, packet_type: 'Unknown', segment: SEGMENTS[role].received }).value++;
    },
  });
}

const PROTOCOLS: readonly SessionInfo['protocol'][] = ['link', 'packets'];

/** A hub's sessions with agents. */
export function sessionMetrics(families: Families): void {
  const sessions = families.gauge(
    'sessions{protocol}',
    'Sessions of agents at this hub, by protocol: link (HTTP/2) or packets (AgentService.Connect).',
  );
  const opens = families.counter(
    'session_opens_total{protocol}',
    'Sessions that agents opened at this hub, by protocol.',
  );
  for (const protocol of PROTOCOLS) {
    sessions.of({ protocol });
    opens.of({ protocol });
  }
  families.on({
    'session:open'({ protocol }) {
      sessions.of({ protocol }).value++;
      opens.of({ protocol }).value++;
    },
    'session:close': ({ protocol }) => sessions.of({ protocol }).value--,
  });
}

/** A gateway's links to hubs. */
export function hubLinkMetrics(families: Families): void {
  const opens = families.counter('hub_link_opens_total', 'Links to hubs that this gateway opened.');
  const failures = families.counter('hub_link_failures_total', 'Links to hubs that could not be opened.');
  families.on({ 'peer:open': () => opens.value++, 'peer:failure': () => failures.value++ });
}
