import type { DialPolicy } from '@isthmus/tunnel';
import type { TenantLimits } from '@isthmus/tunnel/limits';
import { type ApiServerFault, apiServerFaults, type OwnPlaces } from './api-servers.ts';
import { AuthorityIndex } from './certificate-trust.ts';
import { type Claims, claimsOf, type Denials, denialsOf } from './claims.ts';
import { type Claimed, type Clash, Clashes, type Exclusive, exclusivesOf, tokenClaims } from './clashes.ts';
import {
  type CertificateWay,
  Credentials,
  certificateWays,
  credentialProblems,
  kubeconfigFaults,
  type ReadCredentials,
} from './credentials.ts';
import { type Passwords, passwordsOf } from './passwords.ts';
import { comparableHost } from './patterns.ts';
import { policyOf } from './policy.ts';
import type { Problem, ReadFile, UsableFile } from './tenant-file.ts';
import { limitsOf, type TenantFile } from './tenant-schema.ts';

/** A tenant in force. */
export interface Tenant {
  readonly name: string;
  /** The name of its file, in the tenants' directory. */
  readonly path: string;
  readonly file: TenantFile;
  /** The same object for as long as the file says the same of claims. */
  readonly claims: Claims;
  readonly policy: DialPolicy;
  /** What gateways dial for it themselves, of what their flag lists. Unset: all of that. */
  readonly direct: DialPolicy | undefined;
  readonly limits: TenantLimits;
  readonly denials: Denials;
  /** What the files hold that its file names. */
  readonly credentials: Credentials;
  /** Ways in by certificate. */
  readonly certificates: { readonly agent: readonly CertificateWay[]; readonly caller: readonly CertificateWay[] };
  /** Callers' tokens that its file holds hashes of. */
  readonly passwords: Passwords;
  /** Whether callers may prove themselves by a token. */
  readonly takesTokens: boolean;
}

/** A tenant's file as it was read, with the files that it names. The same object means that nothing has changed. */
export interface TenantSource {
  readonly read: ReadFile;
  readonly credentials: ReadCredentials;
}

/** Names of tenants. */
export interface TenantsChange {
  /** New ones too. */
  readonly changed: readonly string[];
  readonly gone: readonly string[];
}

/** Why a file is not in force, or not its newest text. */
export interface FileProblems {
  readonly path: string;
  readonly problems: readonly Problem[];
  /** The tenant that is in force nevertheless. */
  readonly kept?: string;
  /** It is by the newest text: only what a problem is about does not work. */
  readonly newest?: boolean;
}

interface Entry {
  readonly source: TenantSource;
  readonly tenant?: Tenant;
  readonly problems: readonly Problem[];
  /** Whether the tenant is of this source. */
  readonly newest: boolean;
}

export interface TenantsOptions {
  /** Where the program itself is reached: no API server of a tenant is there. */
  readonly own?: OwnPlaces | undefined;
  /** What was found, while a tenant's file is in force, of what it says. It stays in force. */
  readonly found?: ((tenant: Tenant) => Iterable<ApiServerFault>) | undefined;
}

/**
 * The tenants of a directory. A file that cannot be used, or that claims what another tenant has, changes nothing: its tenant stays
 * as it was. A removed file removes its tenant.
 */
export class Tenants {
  #entries: ReadonlyMap<string, Entry> = new Map();
  #byName: ReadonlyMap<string, Tenant> = new Map();
  /** Tenants by their server names (SNI): DNS names, or `*.` and one. */
  readonly #serverNames = new Map<string, string>();
  /** Tenants by the names of their API servers. */
  readonly #apiServers = new Map<string, string>();
  readonly #options: TenantsOptions;
  readonly #clashes = new Clashes();
  readonly #prepared = new Map<string, Candidate>();
  /** Tenants by the ids of their callers' tokens. */
  readonly #passwords = new Map<string, string>();
  #takeTokens = 0;
  /** The authorities of all tenants that issue certificates to agents, and to callers. */
  readonly authorities = { agent: new AuthorityIndex(), caller: new AuthorityIndex() };

  constructor(options: TenantsOptions = {}) {
    this.#options = options;
  }

  get all(): Iterable<Tenant> {
    return this.#byName.values();
  }

  get size(): number {
    return this.#byName.size;
  }

  get(name: string | undefined): Tenant | undefined {
    return name === undefined ? undefined : this.#byName.get(name);
  }

  /** The tenant that a server name (SNI) selects. The longest pattern wins. */
  byServerName(serverName: string): Tenant | undefined {
    const name = comparableHost(serverName);
    let found = this.#serverNames.get(name);
    for (let dot = name.indexOf('.'); dot !== -1 && found === undefined; dot = name.indexOf('.', dot + 1))
      found = this.#serverNames.get(`*${name.slice(dot)}`);
    return this.get(found);
  }

  /** The tenant whose API server has this name. */
  byApiServerName(serverName: string): Tenant | undefined {
    return this.get(this.#apiServers.get(comparableHost(serverName)));
  }

  /** Whether some tenant's API server has a name. */
  get nameApiServers(): boolean {
    return this.#apiServers.size > 0;
  }

  /** The tenant whose file has the token of this id. */
  byPassword(id: string): Tenant | undefined {
    return this.get(this.#passwords.get(id));
  }

  /** Whether callers of some tenant may prove themselves by a token. */
  get takeTokens(): boolean {
    return this.#takeTokens > 0;
  }

  get problems(): FileProblems[] {
    const now = Date.now();
    return [...this.#entries].flatMap(([path, { problems, tenant, source, newest }]) => {
      const { read } = source;
      const standing = tenant && 'file' in read ? [...overdue(tenant, read, now), ...this.#found(tenant, read)] : [];
      const all = [...problems, ...standing];
      return all.length > 0 ? [{ path, problems: all, newest, ...(tenant && { kept: tenant.name }) }] : [];
    });
  }

  #found(tenant: Tenant, read: UsableFile): Problem[] {
    return [...(this.#options.found?.(tenant) ?? [])].flatMap(({ at, message }) => read.problem(at, message));
  }

  /** Does most of the work of an `update` with this file, so that one with many files holds up nobody. */
  prepare(path: string, source: TenantSource): void {
    if (!this.#stands(path, source)) this.#prepared.set(path, this.#judged(path, source));
  }

  /** Takes all files. Costs what has changed. @param files by name */
  update(files: ReadonlyMap<string, TenantSource>): TenantsChange {
    const before = this.#entries;
    const left = [...before.keys()].filter((path) => !files.has(path));
    const due: Candidate[] = [];
    for (const [path, source] of files) {
      if (this.#stands(path, source)) continue;
      const prepared = this.#prepared.get(path);
      due.push(prepared?.source === source ? prepared : this.#judged(path, source));
    }
    this.#prepared.clear();
    for (const path of left) this.#clashes.release(path);
    const refused = this.#clashes.settle(due.filter(({ tenant }) => tenant).sort(this.#inForceFirst));
    const entries = new Map(before);
    for (const path of left) entries.delete(path);
    for (const each of due) entries.set(each.path, this.#entry(each, refused.get(each) ?? []));
    this.#entries = entries;
    const paths = [...left, ...due.map(({ path }) => path)];
    return this.#replace(paths.map((path) => [before.get(path)?.tenant, entries.get(path)?.tenant]));
  }

  /** Whether a file is in force as it is. What it claims, no other file can take. */
  #stands(path: string, source: TenantSource): boolean {
    const entry = this.#entries.get(path);
    return entry?.source === source && entry.newest;
  }

  #judged(path: string, source: TenantSource): Candidate {
    return candidate(path, source, this.#entries.get(path)?.tenant, this.#options.own);
  }

  #entry({ path, source, tenant, problems, read }: Candidate, clashes: readonly Clash[]): Entry {
    if (tenant && clashes.length === 0) return { source, tenant, problems, newest: true };
    const last = this.#entries.get(path)?.tenant;
    const found = read ? clashes.map(({ at, message }) => read.problem(at, message)) : [];
    return { source, problems: [...problems, ...found], newest: false, ...(last && { tenant: last }) };
  }

  /** @param pairs tenants as they were, with what they are now */
  #replace(pairs: readonly (readonly [Tenant | undefined, Tenant | undefined])[]): TenantsChange {
    const [changed, gone]: [string[], string[]] = [[], []];
    const different = pairs.filter(([last, now]) => last !== now);
    const byName = new Map(this.#byName);
    for (const [last] of different) {
      if (!last) continue;
      byName.delete(last.name);
      this.#index(last, 'remove');
    }
    for (const [, now] of different) {
      if (!now) continue;
      byName.set(now.name, now);
      this.#index(now, 'add');
      changed.push(now.name);
    }
    for (const [last] of different) if (last && !byName.has(last.name)) gone.push(last.name);
    this.#byName = byName;
    return { changed, gone };
  }

  #index({ name, file, certificates, passwords, takesTokens }: Tenant, act: 'add' | 'remove'): void {
    if (takesTokens) this.#takeTokens += act === 'add' ? 1 : -1;
    const note = (names: Map<string, string>, keys: Iterable<string>) => {
      for (const key of keys)
        if (act === 'add') names.set(key, name);
        else names.delete(key);
    };
    note(this.#passwords, passwords.keys());
    note(this.#serverNames, (file.server?.serverNames ?? []).map(comparableHost));
    note(this.#apiServers, (file.apiServer?.names ?? []).map(comparableHost));
    for (const role of ['agent', 'caller'] as const)
      this.authorities[role][act](
        name,
        certificates[role].flatMap(({ trust }) => trust?.all ?? []),
      );
  }

  /** Files that were in force keep what they claim; among new ones the first by name wins. */
  readonly #inForceFirst = ({ path: a }: Candidate, { path: b }: Candidate): number => {
    const rank = (path: string) => (this.#entries.get(path)?.tenant ? 0 : 1);
    return rank(a) - rank(b) || (a < b ? -1 : 1);
  };
}

/** A file that is not in force as it is, by itself. */
interface Candidate extends Claimed {
  readonly source: TenantSource;
  /** Set for a file that can be used. */
  readonly read?: UsableFile;
  /** What is to be in force, even if some of it does not work. */
  readonly tenant?: Tenant;
  readonly problems: readonly Problem[];
}

/** Judges a file by itself. @param before the tenant that an earlier text of it keeps in force */
export function candidate(path: string, source: TenantSource, before?: Tenant, own?: OwnPlaces): Candidate {
  const { read, credentials } = source;
  const refused = (problems: readonly Problem[]) => ({ path, source, claimed: [], problems });
  if ('problems' in read) return refused(read.problems);
  const unusable = credentialProblems(read, credentials, before?.credentials);
  if (unusable.length > 0) return refused(unusable);
  const tenant = tenantOf(path, read, credentials, before);
  const { apiServer, server, source: object } = tenant.file;
  const named = apiServer ? apiServerFaults(apiServer, own, server?.serverNames, object !== undefined) : [];
  const faults = [...certificateProblems(tenant), ...tokenProblems(tenant), ...named];
  const problems = faults.map(({ at, message }) => read.problem(at, message));
  if (problems.length > 0) return refused(problems);
  const claimed = exclusivesOf(tenant);
  return { path, source, read, tenant, claimed, problems: kubeconfigFaults(read, tenant.credentials) };
}

/**
 * Revocation lists that should have been replaced. They stay in use: what they revoke stays revoked, and to refuse all others would let a
 * list that is late cut off a tenant.
 */
function overdue({ certificates }: Tenant, read: UsableFile, now: number): Problem[] {
  return [...certificates.agent, ...certificates.caller].flatMap(({ revocations, at }) => {
    if (!revocations || now <= revocations.nextUpdate) return [];
    const since = new Date(revocations.nextUpdate).toISOString();
    return read.problem(`${at}.crl`, `its next update was due at ${since}: replace it; it stays in use`);
  });
}

/** Many files say nothing of what may be dialled. */
const EVERYTHING = policyOf();

function tenantOf(path: string, { file }: UsableFile, read: ReadCredentials, before: Tenant | undefined): Tenant {
  const credentials = new Credentials(read);
  // Rules without a name of their own are named by their place.
  const direct = file.dial?.direct?.map((rule, place) => ({ name: `direct[${place}]`, ...rule }));
  const sameClaims = before && JSON.stringify(before.file.claims) === JSON.stringify(file.claims);
  return {
    name: file.tenant,
    path,
    file,
    claims: sameClaims ? before.claims : claimsOf(file.claims),
    policy: file.dial ? policyOf(file.dial) : EVERYTHING,
    direct: direct && policyOf({ allow: direct }),
    limits: limitsOf(file.limits),
    denials: denialsOf(file.deny),
    credentials,
    certificates: {
      agent: certificateWays(path, file, 'agent', credentials),
      caller: certificateWays(path, file, 'caller', credentials),
    },
    passwords: passwordsOf(file),
    takesTokens: (file.callers ?? []).some((way) => way.passwords || way.tokens || way.tokenReview),
  };
}

/** Checks that no agent's token makes it a caller. */
function tokenProblems(tenant: Tenant): Pick<Problem, 'at' | 'message'>[] {
  const ofAgents = tokenClaims(tenant, 'agent');
  const isAgents = ({ key, part }: Exclusive) =>
    ofAgents.some((each) => each.key === key && (part === undefined || part === each.part));
  const message = "the agents' tokens are of this kind, and could dial: let the audience differ, or the users";
  return tokenClaims(tenant, 'caller')
    .filter(isAgents)
    .map(({ at }) => ({ at, message }));
}

/** Checks that no agent's certificate makes it a caller. */
function certificateProblems({ certificates }: Tenant): Pick<Problem, 'at' | 'message'>[] {
  const ofAgents = new Set(
    certificates.agent.flatMap(({ trust }) => trust?.all.map(({ authorityId }) => authorityId) ?? []),
  );
  return certificates.caller
    .filter(
      ({ names, trustDomain, trust }) =>
        !names && trustDomain === undefined && trust?.all.some(({ authorityId }) => ofAgents.has(authorityId)),
    )
    .map(({ at }) => ({
      at,
      message:
        "the agents' certificates are of the same CA, and could dial: list the callers' names, or use another CA",
    }));
}
