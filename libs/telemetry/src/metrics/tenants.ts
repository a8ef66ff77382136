import { type DialUse, notAuthorisedIn, type Role, unlessProbed } from '@isthmus/tunnel';
import { type DialLimits, GAUGE_LIMITS, REFUSING_LIMITS, USED_LIMITS } from '@isthmus/tunnel/limits';
import { TELEMETRY } from '../defaults.ts';
import { DistinctNames, type SessionCounter } from './census.ts';
import type { Families, ObservedProgram } from './families.ts';
import { carried, type OfTenant, type TenantsTraffic } from './traffic.ts';

/** The tenants of a process with `--tenants-dir`. Read for each page. */
export interface TenantsState {
  readonly size: number;
  has(tenant: string): boolean;
  /** Files that are not in force, or not in their newest text. */
  readonly badFiles: number;
  /** What tenants' files name: one of each kind of a tenant, the one that ends first. */
  certificates(): Iterable<{ readonly tenant: string; readonly where: string; readonly validUntil: number }>;
}

/**
 * The metrics of each tenant, where tenants are configured. Only tenants in force have lines: a name that a peer made up has none, and
 * a tenant that is gone takes its lines along.
 * @returns what the dials and tunnels of a tenant add to, and who counts sessions, as `Directory.watch` and the events of sessions report them
 */
export function tenantMetrics(
  families: Families,
  role: Role,
  tunnels: ObservedProgram['tunnels'],
  state: TenantsState,
): { readonly of: TenantsTraffic; readonly sessions: SessionCounter } {
  const counts = new Map<string, OfTenant>();
  const agents = new DistinctNames();
  const of = (tenant: string): OfTenant | undefined => {
    const known = counts.get(tenant);
    if (known || !state.has(tenant)) return known;
    const made = { dials: { established: 0, failed: 0, abandoned: 0, refused: 0 }, up: 0, down: 0, refused: 0 };
    counts.set(tenant, made);
    return made;
  };
  families.on({
    tenants({ gone }) {
      for (const tenant of gone) counts.delete(tenant);
    },
    ...unlessProbed((_where, _remote, error) => {
      const tally = of(notAuthorisedIn(error)?.principal?.tenant ?? '');
      if (tally) tally.refused++;
    }),
  });
  countedMetrics(families, counts, tunnels, role);
  stateMetrics(families, agents, state);
  return { of, sessions: { count: ({ tenant, agentId }, by) => agents.count(tenant, agentId, by) } };
}

function countedMetrics(
  families: Families,
  counts: ReadonlyMap<string, OfTenant>,
  tunnels: ObservedProgram['tunnels'],
  role: Role,
): void {
  families.tallied(
    'counter',
    'tenant_dials_total{tenant,outcome}',
    'Dials, by tenant and outcome: established, failed, abandoned by the caller, or refused by policy or a limit.',
    () =>
      [...counts].flatMap(([tenant, { dials }]) =>
        Object.entries(dials).map(([outcome, count]) => [{ tenant, outcome }, count] as const),
      ),
  );
  families.tallied(
    'counter',
    'tenant_tunnel_bytes_total{tenant,direction}',
    'Bytes that tunnels carried, by tenant, up (caller to destination) or down; open tunnels included.',
    () => {
      const sums = carried(counts, tunnels, (tunnel) => (tunnel.role === role ? tunnel.dial.tenant : undefined));
      return sums.map(([tenant, direction, bytes]) => [{ tenant, direction }, bytes] as const);
    },
  );
  families.tallied(
    'counter',
    'tenant_refused_total{tenant}',
    'Connections and requests of peers that were refused after they had proven their tenant.',
    () => [...counts].map(([tenant, { refused }]) => [{ tenant }, refused] as const),
  );
}

function stateMetrics(families: Families, agents: DistinctNames, state: TenantsState): void {
  families.tallied('gauge', 'tenant_agents{tenant}', 'Agents with sessions that dials can use, by tenant.', () =>
    [...agents.tenants()].filter(([tenant]) => state.has(tenant)).map(([tenant, count]) => [{ tenant }, count]),
  );
  families.tallied(
    'gauge',
    'tenant_certificate_expiry_timestamp_seconds{tenant,where}',
    "When a tenant's certificate expires, in seconds since the epoch: its server certificate (server), and the first of the CAs of its agents and callers.",
    () =>
      Array.from(
        state.certificates(),
        ({ tenant, where, validUntil }) => [{ tenant, where }, validUntil / 1000] as const,
      ),
  );
  families.measured('tenants', 'Tenants in force.', () => state.size);
  families.measured(
    'tenant_files_bad',
    'Files of --tenants-dir that are not in force in their newest text. isthmus tenants says why.',
    () => state.badFiles,
  );
}

/** A tenant that has dialled through this process, its limits, and what it uses of them. */
export interface LimitedTenant {
  readonly name: string;
  readonly limits: DialLimits;
  readonly use: DialUse;
}

const WHOSE = `Of ${TELEMETRY.metricNames} tenants at most.`;

/** What tenants use of a gateway, against their limits. */
export function tenantLimitMetrics(families: Families, using: () => Iterable<LimitedTenant>): void {
  const seen = () => [...using()].slice(0, TELEMETRY.metricNames);
  families.tallied('gauge', 'tenant_limit{tenant,limit}', `Limit of a tenant in this process. ${WHOSE}`, () =>
    seen().flatMap(({ name: tenant, limits }) =>
      USED_LIMITS.filter((limit) => limits[limit] < Number.POSITIVE_INFINITY).map(
        (limit) => [{ tenant, limit }, limits[limit]] as const,
      ),
    ),
  );
  // How rates are used follows from `tenant_dials_total` and `tenant_tunnel_bytes_total`.
  families.tallied('gauge', 'tenant_use{tenant,limit}', `What a tenant uses of a limit now. ${WHOSE}`, () =>
    seen().flatMap(({ name: tenant, use }) => GAUGE_LIMITS.map((limit) => [{ tenant, limit }, use[limit]] as const)),
  );
  families.tallied(
    'counter',
    'tenant_refused_dials_total{tenant,limit}',
    `Dials of a tenant that one of its limits refused, by limit. ${WHOSE}`,
    () =>
      seen().flatMap(({ name: tenant, use }) =>
        REFUSING_LIMITS.map((limit) => [{ tenant, limit }, use.refused.get(limit) ?? 0] as const),
      ),
  );
}
