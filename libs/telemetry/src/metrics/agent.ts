import { SERVER_DIRECTIONS } from '../events.ts';
import { Families, type ObservedProgram } from './families.ts';
import { leaseCount } from './leases.ts';
import { packetMetrics } from './links.ts';
import { auditMetrics, certificateMetrics, processMetrics, refusalMetrics } from './process.ts';
import { dialMetrics, keptMetrics, openTunnels, tunnelMetrics } from './traffic.ts';

/** In seconds. */
const LATENCY_BUCKETS = [0.005, 0.025, 0.1, 0.5, 2.5, 10, 30];

export interface AgentMetricsOptions {
  /** Adds the process's own metrics (event loop delay, `process_*`, `nodejs_*`), which can exist once per process. Default false. */
  readonly process?: boolean;
}

/** An agent's connections to its servers. Read for each page. */
export interface AgentState {
  /** Connections to servers, except those that are draining. */
  readonly connected: number;
  /** How many servers it should be connected to. */
  readonly wanted: number;
  /** Bytes that tunnels keep until their gateways have them. Unset if tunnels are not resumed. */
  readonly kept?: number | undefined;
}

/** The metrics page of an agent: upstream's `konnectivity_network_proxy_agent_*`, and `isthmus_*`. */
export function agentMetrics({ events, tunnels }: ObservedProgram, options: AgentMetricsOptions = {}) {
  const families = new Families('konnectivity_network_proxy_agent_');
  const own = families.under('isthmus_');
  const traffic = { role: 'agent', tunnels } as const;
  // Includes DNS and connecting, but only dials that succeeded, as upstream does.
  const dials = families.histogram(
    'dial_duration_seconds',
    'Latency of dial to the remote endpoint in seconds',
    LATENCY_BUCKETS,
  );
  endpointMetrics(families);
  serverLinkMetrics(families);
  packetMetrics(families);
  const leases = leaseCount(families, LATENCY_BUCKETS);
  let state: AgentState = { connected: 0, wanted: 0 };
  dialMetrics(own, { ...traffic, upstream: { dials } });
  tunnelMetrics(own, traffic);
  refusalMetrics(own, 'agent');
  coverageMetrics(own, () => state);
  certificateMetrics(own);
  auditMetrics(own);
  keptMetrics(own, () => state.kept);
  families.measured('open_endpoint_connections', 'Current number of open endpoint connections.', openTunnels(traffic));
  if (options.process) processMetrics(families);
  return {
    leases,
    /** Call once, as soon as the program has its agent. */
    measure(seen: AgentState): void {
      state = seen;
    },
    ...families.page(events),
  };
}

function coverageMetrics(families: Families, state: () => AgentState): void {
  families.measured('agent_sessions', 'Sessions of this agent, without those that drain.', () => state().connected);
  families.measured(
    'agent_sessions_wanted',
    'Sessions that this agent should have: --session-count, or one to each server that is in no plane.',
    () => state().wanted,
  );
  const opens = families.counter('server_link_opens_total', 'Links to servers that this agent opened.');
  families.on({ 'server:open': () => opens.value++ });
}

function endpointMetrics(families: Families): void {
  const failures = families.counter(
    'endpoint_dial_failure_total{reason}',
    'Number of failures dialing the remote endpoint, by reason (example: timeout).',
  );
  families.on({ 'endpoint:failure': (timedOut) => failures.of({ reason: timedOut ? 'timeout' : 'unknown' }).value++ });
}

function serverLinkMetrics(families: Families): void {
  const failures = families.counter(
    'server_connection_failure_count{direction}',
    'Count of failures to send to or receive from the proxy server, labeled by the direction (from_server or to_server). DEPRECATED, please use stream_events_error_total',
  );
  const open = families.gauge('open_server_connections', 'Current number of open server connections.');
  const known = families.gauge('known_server_count', 'Current number of servers agent is trying to connect to.');
  families.on({
    'server:open': () => open.value++,
    'server:close': () => open.value--,
    'server:failure': (_address, at) => failures.of({ direction: SERVER_DIRECTIONS[at] }).value++,
    'server:known'(count) {
      known.value = count;
    },
  });
}
