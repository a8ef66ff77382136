import { countIn, getOrPut } from '@isthmus/runtime';
import {
  type AttemptKind,
  type CallerProtocol,
  CUT_BY,
  type CutBy,
  type DialErrorCode,
  isRefusedDial,
  type Role,
  type TunnelInfo,
  upstreamReason,
} from '@isthmus/tunnel';
import { showByName } from './census.ts';
import type { Count, Durations, Families, ObservedProgram, Series } from './families.ts';

/** In seconds: from a dial within one process to one that never gets an answer. */
const DIAL_BUCKETS = [
  ...[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05],
  ...[0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
];

/** What a dial spends its time on. Each phase contains those after it. The hub reports `hub`; the agent reports `agent` and the rest. */
type Phase = 'total' | 'park' | 'attempt' | 'hub' | 'agent' | 'dns' | 'connect';

/** How a dial, or one of its attempts, ended. `abandoned`: the caller gave up. `overtaken`: another attempt was faster. */
const OUTCOMES = ['established', 'failed', 'abandoned', 'overtaken'] as const;
type Outcome = (typeof OUTCOMES)[number];

const KINDS: readonly AttemptKind[] = ['first', 'retry', 'hedge', 'direct'];

/** Upstream's families of the same dials and tunnels. Its servers have all, its agents only the duration of dials. */
interface Upstream {
  /** Of dials that became tunnels, from the request to the answer. */
  readonly dials: Durations;
  readonly failures?: Series<'reason', Count>;
  readonly pending?: Count;
  readonly tunnels?: Durations;
}

/** What is counted of a tenant. */
export interface OfTenant {
  /** `refused`: by policy or a limit, before any agent had the dial. */
  readonly dials: Record<'established' | 'failed' | 'abandoned' | 'refused', number>;
  up: number;
  down: number;
  /** Connections and requests of peers that have proven to be of the tenant. */
  refused: number;
}

/** Returns undefined for a name that no tenant in force has. */
export type TenantsTraffic = (tenant: string) => OfTenant | undefined;

interface TrafficOptions {
  readonly role: Role;
  readonly tunnels: ObservedProgram['tunnels'];
  readonly upstream?: Upstream;
  /** In milliseconds. A dial that failed or took longer has a trace even if it was not sampled. Default: none has. */
  readonly keptAfter?: number | undefined;
  /** Counts those of a gateway's dials. */
  readonly attempts?: Attempts | undefined;
  /** Set where tenants are configured. */
  readonly ofTenant?: TenantsTraffic | undefined;
}

/**
 * Counts the dials of one role that failed, and measures how long dials take, by phase. Phases that only our own hubs and agents report are
 * missing for others.
 */
export function dialMetrics(families: Families, options: TrafficOptions): void {
  const { role, upstream, keptAfter = Number.POSITIVE_INFINITY, attempts, ofTenant } = options;
  // A series appears with its first dial: most phases have only one or two outcomes.
  const latencies = families.histogram(
    'dial_latency_seconds{phase,outcome}',
    'How long dials took, by outcome (established, failed, abandoned by the caller; attempts also overtaken by another) and phase: total, park (waiting for a session), attempt (each one), hub and agent (each including everything behind it), dns and connect (at the agent).',
    DIAL_BUCKETS,
  );
  const seen: Partial<Record<`${Phase} ${Outcome}`, Durations>> = {};
  const observe = (phase: Phase, outcome: Outcome, ms?: number, traceparent?: string, kept?: boolean) => {
    if (ms === undefined) return;
    const series = `${phase} ${outcome}` as const;
    seen[series] ??= latencies.of({ phase, outcome });
    seen[series].observe(ms / 1000, traceparent, kept);
  };
  const errors = families.counter(
    'dial_errors_total{error}',
    'Dials that failed to become a tunnel, by error name (RFC 9209).',
  );
  families.on({
    'dial:start'(by) {
      if (by === role && upstream?.pending) upstream.pending.value++;
    },
    'dial:end'(by, dial, { error, failure, ms, timing }) {
      if (by !== role) return;
      const { trial, tenant, traceparent, log } = dial;
      if (upstream?.pending) upstream.pending.value--;
      if (trial) return;
      let ended: Exclude<Outcome, 'overtaken'> = 'established';
      if (error) {
        ended = failure === 'abandoned' ? 'abandoned' : 'failed';
        errors.of({ error: error.code }).value++;
        if (upstream?.failures) upstream.failures.of({ reason: upstreamReason(failure ?? 'error') }).value++;
      } else upstream?.dials.observe(ms / 1000);
      const tally = ofTenant?.(tenant)?.dials;
      if (tally) tally[error && isRefusedDial(dial, error) ? 'refused' : ended]++;
      const kept = ms > keptAfter || (error !== undefined && keptAfter < Number.POSITIVE_INFINITY);
      observe('total', ended, ms, traceparent, kept);
      if (timing) {
        // A part's own time is already observed as `total`.
        if (role === 'gateway') observe('hub', ended, timing.hubMs);
        if (role !== 'agent') observe('agent', ended, timing.agentMs);
        observe('dns', ended, timing.dnsMs);
        observe('connect', ended, timing.connectMs);
      }
      if (!log) return;
      if (log.parkedMs > 0) observe('park', ended, log.parkedMs);
      for (const attempt of log.attempts) {
        // One that still ran when its dial was abandoned was abandoned too.
        let outcome: Outcome = attempt.outcome === 'running' ? ended : attempt.outcome;
        if (outcome === 'overtaken' && ended === 'abandoned') outcome = 'abandoned';
        if (attempts) attempts[attempt.kind][outcome].value++;
        observe('attempt', outcome, attempt.ms, traceparent);
      }
    },
  });
}

type Attempts = Readonly<Record<AttemptKind, Readonly<Record<Outcome, Count>>>>;

/** The attempts of a gateway's dials, which `dialMetrics` counts. */
export function attemptCounts(families: Families): Attempts {
  const attempts = families.counter(
    'dial_attempts_total{kind,outcome}',
    'Attempts to dial, by kind (first through a session, retry after a failed one, hedge alongside a slow one, or direct by the gateway itself) and outcome.',
  );
  const ofKind = (kind: AttemptKind) =>
    Object.fromEntries(OUTCOMES.map((outcome) => [outcome, attempts.of({ kind, outcome })]));
  return Object.fromEntries(KINDS.map((kind) => [kind, ofKind(kind)])) as unknown as Attempts;
}

/** Counts a gateway's parked dials. */
export function parkedMetrics(families: Families): void {
  const parked = families.gauge('dials_parked', 'Dials that wait for a session.');
  const parks = families.counter('dial_parks_total', 'How often dials were parked to wait for a session.');
  families.on({
    'dial:park'({ trial }) {
      parked.value++;
      if (!trial) parks.value++;
    },
    'dial:unpark': () => parked.value--,
  });
}

/** Adds the bytes of open tunnels to those of ended ones. @param keyOf of which of them a tunnel is; undefined for none */
export function carried<K>(
  ended: Iterable<readonly [K, Pick<TunnelInfo, 'up' | 'down'>]>,
  open: Iterable<TunnelInfo>,
  keyOf: (tunnel: TunnelInfo) => K | undefined,
): (readonly [of: K, direction: 'up' | 'down', bytes: number])[] {
  const sums = new Map([...ended].map(([key, { up, down }]) => [key, { up, down }]));
  for (const tunnel of open) {
    const key = keyOf(tunnel);
    const sum = key === undefined ? undefined : sums.get(key);
    if (!sum) continue;
    sum.up += tunnel.up;
    sum.down += tunnel.down;
  }
  return [...sums].flatMap(([key, { up, down }]) => [[key, 'up', up] as const, [key, 'down', down] as const]);
}

/** Returns a function that counts the open tunnels of a role. */
export function openTunnels({ role, tunnels }: Pick<TrafficOptions, 'role' | 'tunnels'>): () => number {
  return () => {
    let open = 0;
    for (const tunnel of tunnels) if (tunnel.role === role) open++;
    return open;
  };
}

/** Counts the tunnels of one role. @param clients those of API servers' clients, if they have metrics */
export function tunnelMetrics(
  families: Families,
  { role, tunnels, upstream, ofTenant }: TrafficOptions,
  clients?: Map<string, ClientCounts>,
): void {
  const open = openMetrics(families, role, tunnels);
  const ended = { up: 0, down: 0 };
  families.tallied(
    'counter',
    'tunnel_bytes_total{direction}',
    'Bytes that tunnels carried, up (caller to destination) or down (destination to caller), open tunnels included.',
    () => (['up', 'down'] as const).map((direction) => [{ direction }, ended[direction] + open[direction]] as const),
  );
  const idle = families.counter(
    'idle_tunnels_ended_total{role}',
    'Tunnels that a drain ended because they were idle for --drain-idle-timeout.',
  );
  idle.of({ role });
  const resets = families.counter(
    'reset_tunnels_total{by}',
    'Tunnels that one of their ends reset, or that failed at it, by which end.',
  );
  for (const by of ['caller', 'destination']) resets.of({ by });
  const cuts = role === 'gateway' ? cutsByTenant(families) : undefined;
  families.on({
    'tunnel:open'({ role: of, dial: { tenant } }) {
      if (of === 'api-server' && clients) getOrPut(clients, tenant, clientCounts);
      if (of === role && cuts) getOrPut(cuts, tenant, () => new Map(CUT_BY.map((cut) => [cut, 0])));
    },
    'tunnel:close'({ role: of, dial: { tenant }, up, down }, { how, by }, ms) {
      const client = of === 'api-server' ? clients?.get(tenant) : undefined;
      const sums = of === role ? [ended, ofTenant?.(tenant)] : [client];
      for (const sum of sums) {
        if (!sum) continue;
        sum.up += up;
        sum.down += down;
      }
      if (of !== role) return;
      upstream?.tunnels?.observe(ms / 1000);
      if (how === 'failed') resets.of({ by }).value++;
      if (how !== 'cut') return;
      const own = cuts?.get(tenant);
      own?.set(by, (own.get(by) ?? 0) + 1);
    },
    'tunnel:idle': (tunnel) => idle.of({ role: tunnel.role }).value++,
    tenants({ gone }) {
      for (const tenant of gone) {
        cuts?.delete(tenant);
        clients?.delete(tenant);
      }
    },
  });
}

/** The open tunnels of one role, as they are when a page is read. A name keeps its place for as long as there is one of it. */
class OpenTunnels {
  readonly tenants = new Map<string, number>();
  readonly hubs = new Map<string, number>();
  /** Bytes that they buffer, and have carried. */
  queued = 0;
  up = 0;
  down = 0;

  /** Counts them anew. */
  count(role: Role, tunnels: ObservedProgram['tunnels']): void {
    const { tenants, hubs } = this;
    for (const counts of [tenants, hubs]) for (const name of counts.keys()) counts.set(name, 0);
    Object.assign(this, { queued: 0, up: 0, down: 0 });
    for (const tunnel of tunnels) {
      if (tunnel.role !== role) continue;
      const { dial, hubId } = tunnel;
      tenants.set(dial.tenant, (tenants.get(dial.tenant) ?? 0) + 1);
      hubs.set(hubId, (hubs.get(hubId) ?? 0) + 1);
      this.queued += tunnel.queued ?? 0;
      this.up += tunnel.up;
      this.down += tunnel.down;
    }
    for (const counts of [tenants, hubs]) for (const [name, count] of counts) if (count === 0) counts.delete(name);
  }
}

/** Shows the open tunnels. The first of these families counts for those behind it on the page. An agent does not know the hub of a tunnel. */
function openMetrics(families: Families, role: Role, tunnels: ObservedProgram['tunnels']): OpenTunnels {
  const open = new OpenTunnels();
  showByName(families, 'tenant', 'tunnels', 'open tunnels', () => {
    open.count(role, tunnels);
    return open.tenants;
  });
  if (role !== 'agent') showByName(families, 'hub', 'tunnels', 'open tunnels', () => open.hubs);
  families.measured('tunnel_queued_bytes', 'Bytes that open tunnels buffer for slow readers.', () => open.queued);
  return open;
}

/**
 * The tunnels of a gateway's callers that were cut. A tenant's lines begin at 0 with its first tunnel, since a line that begins at 1
 * is no increase, and go with the tenant.
 */
function cutsByTenant(families: Families): Map<string, Map<CutBy, number>> {
  const tenants = new Map<string, Map<CutBy, number>>();
  families.tallied(
    'counter',
    'tunnels_cut_total{tenant,by}',
    'Tunnels that neither end has ended, by tenant and what cut them (docs/RELIABILITY.md).',
    () => [...tenants].flatMap(([tenant, cuts]) => [...cuts].map(([by, count]) => [{ tenant, by }, count] as const)),
  );
  return tenants;
}

/** What clients' connections to the API server of one tenant have carried, and how they failed. */
type ClientCounts = ReturnType<typeof clientCounts>;

function clientCounts() {
  return { up: 0, down: 0, failures: new Map<DialErrorCode, number>() };
}

/**
 * Clients' connections to their API servers that this process has made. A tenant has lines from its first connection on, until its file is gone.
 * @returns by tenant, what `tunnelMetrics` counts of them
 */
export function clientMetrics(families: Families, tunnels: ObservedProgram['tunnels']): Map<string, ClientCounts> {
  const clients = new Map<string, ClientCounts>();
  const tenantOf = ({ role, dial }: TunnelInfo) => (role === 'api-server' ? dial.tenant : undefined);
  families.tallied(
    'gauge',
    'api_server_connections{tenant}',
    "Clients' connections to their API servers that this process has made, by tenant. A sum over all members counts each once.",
    () => {
      const open = Map.groupBy(tunnels, tenantOf);
      return [...clients.keys()].map((tenant) => [{ tenant }, open.get(tenant)?.length ?? 0] as const);
    },
  );
  families.tallied(
    'counter',
    'api_server_bytes_total{tenant,direction}',
    'Bytes of these connections, by tenant, up (from the client) or down; open ones included.',
    () =>
      carried(clients, tunnels, tenantOf).map(([tenant, direction, bytes]) => [{ tenant, direction }, bytes] as const),
  );
  families.tallied(
    'counter',
    'api_server_failures_total{tenant,error}',
    'Connections of clients that were reset by a limit, or because no address of their API server answered, by tenant and error name (RFC 9209).',
    () =>
      [...clients].flatMap(([tenant, { failures }]) =>
        [...failures].map(([error, count]) => [{ tenant, error }, count] as const),
      ),
  );
  families.on({
    'api-server:failure': ({ tenant }, { code }) => countIn(getOrPut(clients, tenant, clientCounts).failures, code, 1),
  });
  return clients;
}

/** In seconds: from a round trip within a site to what `--resume-timeout` usually allows. */
const PAUSE_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3.5, 5, 10, 15, 30, 60, 120];

/** What becomes of a gateway's tunnels whose hub, session or link is lost or about to go. */
export function resumeMetrics(families: Families): void {
  const counts = families.counter(
    'resumed_tunnels_total{how}',
    'How often tunnels went on through another stream, by how: resumed (after their hub, session or link was lost) or moved (while the old stream still carried).',
  );
  const [resumed, moved] = [counts.of({ how: 'resumed' }), counts.of({ how: 'moved' })];
  const detached = families.gauge('detached_tunnels', 'Tunnels that wait for another way to their agent.');
  const pauses = families.histogram(
    'resume_pause_seconds',
    'How long tunnels paused that were resumed.',
    PAUSE_BUCKETS,
  );
  families.on({
    'tunnel:detach': () => detached.value++,
    'tunnel:attach'(_tunnel, paused) {
      if (paused === 0) {
        moved.value++;
        return;
      }
      resumed.value++;
      detached.value--;
      pauses.observe(paused / 1000);
    },
    'tunnel:give-up': () => detached.value--,
  });
}

/** @param kept reads the bytes that the process keeps; undefined if it resumes no tunnels */
export function keptMetrics(families: Families, kept: () => number | undefined): void {
  families.measured(
    'resume_kept_bytes',
    'Bytes that open tunnels keep until the other end has them. Absent with --resume-timeout 0.',
    kept,
  );
}

/**
 * Connections of callers and of Go agents, which have the same families. Upstream's label `service_method` is the packet stream that a part of
 * the plane reads: a gateway Proxy, the others Connect.
 * @param buckets of the latency of writes, in seconds
 */
export function connectionMetrics(families: Families, buckets: readonly number[]): void {
  const writes = families.histogram(
    'frontend_write_duration_seconds',
    'Latency of write to the frontend in seconds',
    buckets,
  );
  const grpc = families.gauge(
    'grpc_connections{service_method}',
    'Number of current grpc connections, partitioned by service method.',
  );
  const http = families.gauge('http_connections', 'Number of current HTTP CONNECT connections');
  const full = families.gauge(
    'full_receive_channels{service_method}',
    'Number of current connections blocked by a full receive channel, partitioned by service method.',
  );
  const callers: Record<CallerProtocol, Count> = { grpc: grpc.of({ service_method: 'Proxy' }), 'http-connect': http };
  const agents = grpc.of({ service_method: 'Connect' });
  // Look these up once: a tunnel that is faster than its reader pauses and resumes thousands of times a second.
  const connect = full.of({ service_method: 'Connect' });
  const blocked: Record<Role, Count> = { gateway: full.of({ service_method: 'Proxy' }), hub: connect, agent: connect };
  families.on({
    'caller:open': (via) => callers[via].value++,
    'caller:close': (via) => callers[via].value--,
    'caller:write': (ms) => writes.observe(ms / 1000),
    'session:open'({ protocol }) {
      if (protocol === 'packets') agents.value++;
    },
    'session:close'({ protocol }) {
      if (protocol === 'packets') agents.value--;
    },
    'receive:full': (role) => blocked[role].value++,
    'receive:free': (role) => blocked[role].value--,
  });
}
