import type { FileProblem, KnownTenant, TenantsPart } from '@isthmus/admin';
import type { Tenant } from '@isthmus/admission';
import { problemMessage, problemText } from '@isthmus/admission/basics';
import { CertificatePool } from '@isthmus/runtime';
import type { TenantsSight } from '@isthmus/telemetry';
import type { Tenancy } from './tenancy.ts';
import { type UseOptions, useIn } from './use.ts';

/** The tenants as an operator sees them. */
export function tenantsPart(tenancy: Tenancy, roles: UseOptions): TenantsPart {
  return {
    *list() {
      const use = useIn(roles);
      for (const tenant of tenancy.tenants.all) {
        const { name, path: file } = tenant;
        yield { name, file, use: use(tenant), certificates: certificatesOf(tenant) };
      }
    },
    has: (name) => tenancy.tenant(name) !== undefined,
    problems: () => problemsOf(tenancy),
  };
}

/** How many problems become warnings of a server. `isthmus tenants` shows all. */
const MOST_WARNINGS = 10;

/** What an operator should fix in the files, although the server is ready. */
export function fileWarnings({ problems, tenants }: Tenancy): string[] {
  const bad = problems.flatMap(({ path, problems: found }) =>
    found.map((problem) => `tenant's file ${problemText(path, problem)}`),
  );
  const skipped = [...tenants.all].flatMap(({ certificates }) =>
    [...certificates.agent, ...certificates.caller].flatMap(({ rule, trust }) =>
      (trust?.skipped ?? []).map((each) => `tenant's file ${rule}.ca: ${each}: the others are used, this one is not`),
    ),
  );
  return [...bad, ...skipped].slice(0, MOST_WARNINGS);
}

/** The tenants as metrics see them. */
export function tenantsSight({ tenants, tenant, problems }: Tenancy): TenantsSight {
  return {
    get size() {
      return tenants.size;
    },
    has: (name) => tenant(name) !== undefined,
    get badFiles() {
      return problems.length;
    },
    *certificates() {
      for (const each of tenants.all) yield* firstToEnd(each);
    },
  };
}

function problemsOf({ problems }: Tenancy): FileProblem[] {
  return problems.flatMap(({ path, problems: found, kept }) =>
    found.map((problem) => {
      const { line, column } = problem;
      return { file: path, line, column, message: problemMessage(problem), kept };
    }),
  );
}

type Certificate = KnownTenant['certificates'][number];

/** By tenant. A tenant whose files change becomes another object, so an entry is never stale. */
const known = new WeakMap<Tenant, readonly Certificate[]>();

/** What a tenant's file names: its server certificate, and the CAs of its agents and callers. */
function certificatesOf(tenant: Tenant): readonly Certificate[] {
  const before = known.get(tenant);
  if (before) return before;
  const { credentials, certificates, path } = tenant;
  const server = credentials.text('server.certificate');
  const authorities = [...certificates.agent, ...certificates.caller].flatMap(({ rule, trust }) =>
    (trust?.all ?? []).map(({ title, validTo }) => ({
      where: `${rule.slice(`${path}: `.length)}.ca`,
      name: title,
      validUntil: validTo,
    })),
  );
  const [own] = server === undefined ? [] : CertificatePool.of(server).all;
  const found = [
    ...(own ? [{ where: 'server.certificate', name: own.title, validUntil: own.validTo }] : []),
    ...authorities,
  ];
  known.set(tenant, found);
  return found;
}

/** Yields the certificate of each kind (server, agents, callers) that expires first. */
function* firstToEnd(tenant: Tenant) {
  const firsts = new Map<string, number>();
  for (const { where, validUntil } of certificatesOf(tenant)) {
    const [kind = ''] = where.split(/[.[]/);
    firsts.set(kind, Math.min(validUntil, firsts.get(kind) ?? Number.POSITIVE_INFINITY));
  }
  for (const [where, validUntil] of firsts) yield { tenant: tenant.name, where, validUntil };
}
