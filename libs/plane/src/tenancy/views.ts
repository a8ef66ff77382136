import { hash } from 'node:crypto';
import type { FileProblem, KnownTenant, Notice, TenantsPart } from '@isthmus/admin';
import { ADMISSION, type Admission, problemMessage, problemText, type Tenant } from '@isthmus/admission';
import { CertificatePool, countIn, getOrPut, type Certificate as X509 } from '@isthmus/runtime';
import type { Check } from '@isthmus/service';
import type { LimitedTenant, TenantsState } from '@isthmus/telemetry';
import type { ApiServers } from '@isthmus/transport';
import { type DialUse, identifierCount, type SessionInfo } from '@isthmus/tunnel';
import { type TenantLimit, type TenantLimits, USED_LIMITS } from '@isthmus/tunnel/limits';
import { PLANE } from '../defaults.ts';

/** What operators, metrics and health checks see of the tenants. */
export function tenantViews(admission: Admission) {
  return {
    part: (roles: UseOptions) => tenantsPart(admission, roles),
    state: tenantsState(admission),
    /** The tenants that have dialled through a gateway. */
    using: (gateway: DialsHeld) => tenantsUsing(admission, gateway),
    /** Which tenants are in force, and which files are not. */
    check: (roles: UseOptions) => tenantsCheck(admission, unopenedAt(roles)),
    notices: () => fileNotices(admission),
  };
}

type Use = KnownTenant['use'];

/** What tenants have of a gateway. */
export interface DialsHeld {
  /** Why tenants' own ports and unix sockets cannot be opened. */
  readonly unopened: readonly string[];
  /** What a tenant uses of this process; undefined before it has dialled. */
  use(tenant: string): DialUse | undefined;
}

/** What tenants have of a hub. */
export interface SessionsHeld {
  /** Why tenants' own ports cannot be opened. */
  readonly unopened: readonly string[];
  readonly sessions: { list(): Iterable<SessionInfo> };
  /** Sessions of a tenant that were renewed in the last full second. */
  renewals(tenant: string): number;
  /** Connections of a tenant's clients to its API server. */
  apiServerConnections(tenant: string): number;
}

interface UseOptions {
  readonly gateway?: DialsHeld | undefined;
  readonly hub?: SessionsHeld | undefined;
  /** A gateway's connections to API servers. */
  readonly apiServers?: { readonly servers: Pick<ApiServers, 'open'> } | undefined;
}

/** Why tenants' own ports and unix sockets are not open. */
function unopenedAt({ gateway, hub }: UseOptions): readonly string[] {
  return [...(gateway?.unopened ?? []), ...(hub?.unopened ?? [])];
}

/** Returns what a tenant uses of the limits of this process: dials and tunnels at a gateway, agents at a hub. */
function useIn({ gateway, hub, apiServers }: UseOptions): (tenant: Tenant) => Use {
  const held = hub && heldBy(hub.sessions.list());
  return (tenant) => ({
    ...(hub && heldUse(tenant, held?.get(tenant.name), hub)),
    ...(gateway && dialUse(tenant, gateway)),
    ...(apiServers && ofMost(tenant.limits, { apiServerConnections: apiServers.servers.open(tenant.name) })),
  });
}

function ofMost(limits: TenantLimits, used: Partial<Record<TenantLimit, number>>): Use {
  const names = Object.keys(used) as TenantLimit[];
  return Object.fromEntries(names.map((name) => [name, { used: used[name] ?? 0, most: limits[name] }]));
}

function dialUse({ name, limits }: Tenant, gateway: DialsHeld): Use {
  const use = gateway.use(name);
  // Without a limit, bytes per second are not counted.
  const counted = USED_LIMITS.filter((limit) => limits[limit] < Number.POSITIVE_INFINITY);
  return ofMost(limits, Object.fromEntries(counted.map((limit) => [limit, use?.[limit] ?? 0])));
}

/** What a tenant's agents hold at a hub. */
class Held {
  /** By agent. */
  readonly sessionsOf = new Map<string, number>();
  sessions = 0;
  /** Sessions of the agent with most. */
  sessionsPerAgent = 0;
  /** Identifiers of the session with most. */
  identifiers = 0;
}

function heldUse({ name, limits }: Tenant, held: Held | undefined, hub: SessionsHeld): Use {
  return ofMost(limits, {
    agents: held?.sessionsOf.size ?? 0,
    sessions: held?.sessions ?? 0,
    sessionsPerAgent: held?.sessionsPerAgent ?? 0,
    identifiers: held?.identifiers ?? 0,
    renewalsPerSecond: hub.renewals(name),
    apiServerConnections: hub.apiServerConnections(name),
  });
}

function heldBy(sessions: Iterable<SessionInfo>): Map<string, Held> {
  const all = new Map<string, Held>();
  for (const { tenant, agentId, identifiers } of sessions) {
    const held = getOrPut(all, tenant, () => new Held());
    const own = (held.sessionsOf.get(agentId) ?? 0) + 1;
    held.sessionsOf.set(agentId, own);
    held.sessions++;
    held.sessionsPerAgent = Math.max(held.sessionsPerAgent, own);
    held.identifiers = Math.max(held.identifiers, identifierCount(identifiers));
  }
  return all;
}

/**
 * Passes with problems too: one tenant's bad file must not make a server unready for the other tenants.
 */
function tenantsCheck({ tenants, problems }: Admission, unopened: readonly string[]): Check {
  const text = ({ path, problems: [first], kept, newest }: (typeof problems)[number]) => {
    const still = kept === undefined || newest ? '' : ` (tenant ${kept} stays as it was)`;
    return `${first ? problemText(path, first) : path}${still}`;
  };
  const files = problems.length === 1 ? '1 file with problems' : `${problems.length} files with problems`;
  const detail = [
    `${tenants.size} in force`,
    ...(problems.length > 0 ? [`${files}: ${shortened(problems, text)}`] : []),
    ...(unopened.length > 0 ? [`not open: ${shortened(unopened, String)}`] : []),
  ];
  return { name: 'tenants', ok: true, detail: detail.join(', ') };
}

function shortened<T>(items: readonly T[], text: (item: T) => string): string {
  const rest = items.length - PLANE.listedProblems;
  return `${items.slice(0, PLANE.listedProblems).map(text).join('; ')}${rest > 0 ? `; ${rest} more` : ''}`;
}

/** The tenants as an operator sees them. */
function tenantsPart(admission: Admission, roles: UseOptions): TenantsPart {
  return {
    *list() {
      const use = useIn(roles);
      for (const tenant of admission.tenants.all) {
        const { name, path: file, file: said } = tenant;
        const source = said.source && `${said.source.kind} ${said.source.namespace}/${said.source.name}`;
        const { names: apiServerNames = [] } = said.apiServer ?? {};
        yield { name, file, source, use: use(tenant), apiServerNames, ...told(tenant) };
      }
    },
    has: (name) => admission.tenants.get(name) !== undefined,
    problems: () => problemsOf(admission),
    scraped: (name) => admission.scraped.of(name),
    unopened() {
      const told = new Map<string, number>();
      return unopenedAt(roles).filter((text) => countIn(told, text.replace(/:.*/s, ''), 1) <= ADMISSION.problemsOfFile);
    },
  };
}

/** What an operator should fix in the files, although the server is ready. */
function fileNotices({ problems, tenants, scraped }: Admission): Notice[] {
  const bad = problems.flatMap(({ path, problems: found }) =>
    found.map((problem) => `tenant's file ${problemText(path, problem)}`),
  );
  const skipped = [...tenants.all].flatMap(({ certificates }) =>
    [...certificates.agent, ...certificates.caller].flatMap(({ rule, trust }) =>
      (trust?.skipped ?? []).map((each) => `tenant's file ${rule}.ca: ${each}: the others are used, this one is not`),
    ),
  );
  const files = [...bad, ...skipped].map((text): Notice => ({ kind: 'tenant_file', text }));
  const unlisted = scraped.failures.map((failure): Notice => {
    return { kind: 'nodes', text: `no new list of nodes: tenant's file ${failure}` };
  });
  return [...files, ...unlisted].slice(0, PLANE.notices);
}

/** The tenants as metrics see them. */
function tenantsState(admission: Admission): TenantsState {
  const { tenants } = admission;
  return {
    get size() {
      return tenants.size;
    },
    has: (name) => tenants.get(name) !== undefined,
    get badFiles() {
      return admission.problems.length;
    },
    *certificates() {
      for (const each of tenants.all) yield* firstToEnd(each);
    },
  };
}

function problemsOf({ problems }: Admission): FileProblem[] {
  return problems.flatMap(({ path, problems: found, kept, newest }) =>
    found.map((problem) => {
      const { line, column } = problem;
      return { file: path, line, column, message: problemMessage(problem), ...(!newest && { kept }) };
    }),
  );
}

type Certificate = KnownTenant['certificates'][number];

type Told = Pick<KnownTenant, 'certificates' | 'state'>;

/** By tenant. A tenant whose files change becomes another object, so an entry is never stale. */
const known = new WeakMap<Tenant, Told>();

function told(tenant: Tenant): Told {
  const before = known.get(tenant);
  if (before) return before;
  const state = hash('sha256', JSON.stringify(tenant.file), 'base64url').slice(0, PLANE.stateDigest);
  const found = { certificates: certificatesOf(tenant), state };
  known.set(tenant, found);
  return found;
}

/** What a tenant's file names: its server certificate, and the CAs of its agents and callers. */
function certificatesOf(tenant: Tenant): readonly Certificate[] {
  const { credentials, certificates } = tenant;
  const server = credentials.file('server.certificate').text;
  const authorities = [...certificates.agent, ...certificates.caller].flatMap(({ at, trust }) =>
    (trust?.all ?? []).map((each) => certificateAt(`${at}.ca`, each)),
  );
  const [own] = server === undefined ? [] : CertificatePool.of(server).all;
  return [...(own ? [certificateAt('server.certificate', own)] : []), ...authorities];
}

function certificateAt(where: string, { title, validFrom, validTo }: X509): Certificate {
  return { where, name: title, validFrom, validUntil: validTo };
}

/** Yields the certificate of each kind (server, agents, callers) that expires first. */
function* firstToEnd(tenant: Tenant) {
  const firsts = new Map<string, number>();
  for (const { where, validUntil } of told(tenant).certificates) {
    const [kind = ''] = where.split(/[.[]/);
    firsts.set(kind, Math.min(validUntil, firsts.get(kind) ?? Number.POSITIVE_INFINITY));
  }
  for (const [where, validUntil] of firsts) yield { tenant: tenant.name, where, validUntil };
}

/** The tenants that have dialled through a gateway, for its metrics. */
function* tenantsUsing({ tenants }: Admission, gateway: DialsHeld): Iterable<LimitedTenant> {
  for (const { name, limits } of tenants.all) {
    const use = gateway.use(name);
    if (use) yield { name, limits, use };
  }
}
