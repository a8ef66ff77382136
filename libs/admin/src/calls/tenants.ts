import type { adminApi } from '@isthmus/proto/admin';
import { getOrPut } from '@isthmus/runtime';
import type { AdminBackend } from '../backend.ts';
import type { Call } from './messages.ts';

/** What a tenant uses of a limit. */
export interface Use {
  readonly used: number;
  /** Infinity without a limit. */
  readonly most: number;
}

/** A tenant in force. */
export interface KnownTenant extends Pick<adminApi.Tenant, 'name' | 'file' | 'state'> {
  /** The Kubernetes object that the file was made of: `Cluster acme/prod`. */
  readonly source?: string | undefined;
  /** What it uses of the limits that this process keeps, by their names in the file. */
  readonly use: Readonly<Record<string, Use>>;
  readonly certificates: readonly TenantCertificate[];
  /** By which clients reach its API server. */
  readonly apiServerNames: readonly string[];
}

/** A certificate that a tenant's file names. */
export interface TenantCertificate {
  /** `server.certificate` */
  readonly where: string;
  /** Subject and serial number. */
  readonly name: string;
  /** Milliseconds since the epoch. */
  readonly validFrom: number;
  readonly validUntil: number;
}

/** A file that is not in force, or not in its newest text. */
export interface FileProblem extends Omit<adminApi.TenantFileProblem, 'kept'> {
  /** The tenant that an earlier text of the file keeps in force. */
  readonly kept?: string | undefined;
}

/** Targets with the same labels, as Prometheus' HTTP service discovery has them. */
export interface TargetGroup {
  /** `host:port` each. */
  readonly targets: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
}

/** The tenants of a process with `--tenants-dir`. */
export interface TenantsPart {
  list(): Iterable<KnownTenant>;
  has(name: string): boolean;
  problems(): readonly FileProblem[];
  /** What the files have Prometheus scrape, of one tenant or of all. Undefined while that is not known yet. */
  scraped(tenant?: string): Promise<readonly TargetGroup[] | undefined>;
  /** Why ports and unix sockets that the files name are not open. */
  unopened(): readonly string[];
}

/** What a tenant has in this process. */
interface Counts {
  readonly agents: Set<string>;
  sessions: number;
  tunnels: number;
}

export const listTenants: Call<'listTenants'> = async (backend, { tenant }) => {
  const part = backend.tenants;
  const counts = countsOf(backend);
  const known = part ? [...part.list()] : [...counts.keys()].map(unconfigured);
  const tenants = known
    .filter(({ name }) => tenant === '' || name === tenant)
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map((each) => tenantMessage(each, counts.get(each.name), backend));
  const problems = (part?.problems() ?? []).map(({ kept = '', ...problem }) => ({ ...problem, kept }));
  return { tenants, problems, configured: part !== undefined, unopened: [...(part?.unopened() ?? [])] };
};

function unconfigured(name: string): KnownTenant {
  return { name, file: '', use: {}, certificates: [], apiServerNames: [], state: '' };
}

function countsOf(backend: AdminBackend): Map<string, Counts> {
  const counts = new Map<string, Counts>();
  const of = (tenant: string) => getOrPut(counts, tenant, () => ({ agents: new Set(), sessions: 0, tunnels: 0 }));
  for (const { tenant, agentId } of backend.sessions()) {
    const tally = of(tenant);
    tally.agents.add(agentId);
    tally.sessions++;
  }
  const [first] = backend.identity.roles;
  for (const { role, dial } of backend.tunnels()) if (role === first) of(dial.tenant).tunnels++;
  return counts;
}

function tenantMessage(
  tenant: KnownTenant,
  counts: Counts | undefined,
  { recent, identity }: AdminBackend,
): adminApi.DeepPartial<adminApi.Tenant> {
  const { name, source = '', use, certificates, apiServerNames } = tenant;
  const [first] = identity.roles;
  return {
    ...tenant,
    source,
    agents: counts?.agents.size ?? 0,
    sessions: counts?.sessions ?? 0,
    tunnels: counts?.tunnels ?? 0,
    pendingDials: recent.pending(first, name),
    callers: recent.callersOf(name),
    use: Object.entries(use).map(([limit, { used, most }]) => {
      return { limit, used, most: Number.isFinite(most) ? most : undefined };
    }),
    certificates: certificates.map(({ validFrom, validUntil, ...each }) => {
      return { ...each, expiresMs: Math.round(validUntil), beginsMs: Math.round(validFrom) };
    }),
    apiServerNames: [...apiServerNames],
  };
}
