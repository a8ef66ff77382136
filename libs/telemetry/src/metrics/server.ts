import type { Strategy } from '@isthmus/directory';
import type { Role } from '@isthmus/tunnel';
import { Backends, ownSessions } from './census.ts';
import { Families, type Metrics, type ObservedProgram } from './families.ts';
import { leaseCollection } from './leases.ts';
import { hubLinkMetrics, packetMetrics, sessionMetrics } from './links.ts';
import { type PlaneState, planeMetrics } from './plane.ts';
import { auditMetrics, certificateMetrics, processMetrics, refusalMetrics } from './process.ts';
import { type TenantsState, tenantMetrics } from './tenants.ts';
import {
  attemptCounts,
  clientMetrics,
  connectionMetrics,
  dialMetrics,
  openTunnels,
  parkedMetrics,
  resumeMetrics,
  tunnelMetrics,
} from './traffic.ts';

/** In seconds. */
const LATENCY_BUCKETS = [0.000001, 0.00001, 0.0001, 0.005, 0.025, 0.1, 0.5, 2.5, 12.5];

/** In seconds, up to a day. */
const CONNECTION_BUCKETS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 14400, 43200, 86400];

export interface ServerMetricsOptions {
  /** What the process is. A `server` is gateway and hub in one, and counts only the gateway's dials and tunnels, so each counts once. */
  readonly role: 'gateway' | 'hub' | 'server';
  readonly strategies: readonly Strategy[];
  /** In milliseconds. A gateway's dial that failed or took longer can also be an exemplar. Default: only sampled dials can. */
  readonly keptAfter?: number;
  /** Set with `--tenants-dir`: adds the metrics of each tenant. */
  readonly tenants?: TenantsState | undefined;
  /** Adds the process's own metrics (event loop delay, `process_*`, `nodejs_*`), which can exist once per process. Default false. */
  readonly process?: boolean;
}

export interface ServerMetrics extends Metrics {
  readonly leases: ReturnType<typeof leaseCollection>;
  /** Call once, as soon as the program has its plane. */
  measure(state: PlaneState): void;
}

/** The metrics page of a gateway, a hub or both: upstream's `konnectivity_network_proxy_server_*`, and `isthmus_*`. */
export function serverMetrics({ events, tunnels }: ObservedProgram, options: ServerMetricsOptions): ServerMetrics {
  const families = new Families('konnectivity_network_proxy_server_');
  const own = families.under('isthmus_');
  const { strategies, keptAfter } = options;
  const role: 'gateway' | 'hub' = options.role === 'hub' ? 'hub' : 'gateway';
  const backends = backendMetrics(families, strategies);
  const upstream = upstreamTraffic(families, { role, tunnels });
  connectionMetrics(families, LATENCY_BUCKETS);
  packetMetrics(families);
  const leases = leaseCollection(families);
  const plane = planeMetrics(own, role, options.tenants !== undefined);
  const attempts = role === 'gateway' ? attemptCounts(own) : undefined;
  const tenants = options.tenants && tenantMetrics(own, role, tunnels, options.tenants);
  const traffic = { role, tunnels, upstream, keptAfter, attempts, ofTenant: tenants?.of };
  const clients = clientMetrics(own, tunnels);
  dialMetrics(own, traffic);
  tunnelMetrics(own, traffic, clients);
  refusalMetrics(own, role);
  certificateMetrics(own);
  auditMetrics(own);
  if (role === 'gateway') {
    parkedMetrics(own);
    hubLinkMetrics(own);
    resumeMetrics(own);
  }
  if (options.role !== 'gateway') sessionMetrics(own);
  if (tenants) plane.watch(tenants.sessions);
  // As with upstream, a server that is also a hub counts only the agents that are connected to itself.
  if (options.role === 'server') own.on(ownSessions(backends));
  else plane.watch(backends);
  if (options.process) processMetrics(families);
  return { leases, measure: plane.measure, ...families.page(events) };
}

/** The metrics page of `isthmus hold`: its dials and tunnels, and how these went on. */
export function holdMetrics({ events, tunnels }: ObservedProgram): Metrics {
  const own = new Families('isthmus_');
  const traffic = { role: 'gateway', tunnels } as const;
  tunnelMetrics(own, traffic);
  refusalMetrics(own, 'gateway');
  resumeMetrics(own);
  dialMetrics(own, traffic);
  certificateMetrics(own);
  processMetrics(own);
  return own.page(events);
}

function upstreamTraffic(families: Families, traffic: { readonly role: Role } & Pick<ObservedProgram, 'tunnels'>) {
  // Upstream observes this when it sends the answer to the caller, and only for dials that became tunnels.
  const dials = families.histogram(
    'dial_duration_seconds',
    'Latency of dial to the remote endpoint in seconds',
    LATENCY_BUCKETS,
  );
  const tunnels = families.histogram(
    'connection_duration_seconds',
    'Duration in seconds a proxied end-to-end connection was established (post-dial) before being closed.',
    CONNECTION_BUCKETS,
  );
  const pending = families.gauge('pending_backend_dials', 'Current number of pending backend dial requests');
  families.measured(
    'established_connections',
    'Current number of established end-to-end connections (post-dial).',
    openTunnels(traffic),
  );
  const failures = families.counter(
    'dial_failure_count{reason}',
    'Number of dial failures observed. Multiple failures can occur for a single dial request.',
  );
  families.on({
    'dial:undelivered': () => failures.of({ reason: 'send_rsp' }).value++,
    'dial:unasked': () => failures.of({ reason: 'unrecognized_response' }).value++,
  });
  return { dials, tunnels, pending, failures };
}

function backendMetrics(families: Families, strategies: readonly Strategy[]): Backends {
  const backends = new Backends(['default', ...strategies]);
  // Upstream sets this from whichever strategy changed last. Here it counts agents, as its help says.
  families.measured(
    'ready_backend_connections',
    'Number of konnectivity agent connected to the proxy server. DEPRECATED, please use ready_backends',
    () => backends.ready('default'),
  );
  families.tallied(
    'gauge',
    'ready_backends{proxy_strategy}',
    'Number of konnectivity agent connected to the proxy server',
    () => strategies.map((strategy) => [{ proxy_strategy: strategy }, backends.ready(strategy)] as const),
  );
  return backends;
}
