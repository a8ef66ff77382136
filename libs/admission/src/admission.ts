import { resolve } from 'node:path';
import { guarding } from '@isthmus/runtime';
import {
  callerName,
  DialError,
  type DialRequest,
  formatDestination,
  NotAuthorised,
  type PlaneEvents,
  type Principal,
} from '@isthmus/tunnel';
import { DEFAULT_LIMITS, type TenantLimits } from '@isthmus/tunnel/limits';
import type { ApiServerFault, OwnPlaces } from './api-servers.ts';
import { type Claim, claimFault } from './claims.ts';
import { ProgramBundles } from './credential-files.ts';
import { type Grant, Grants } from './grants.ts';
import { type Identify, identifyBy } from './identify.ts';
import { ScrapeTargets } from './scrape-targets.ts';
import { problemText } from './tenant-file.ts';
import { TenantTokens } from './tenant-tokens.ts';
import type { FileProblems, Tenant, Tenants, TenantsChange } from './tenants.ts';
import { type OnlyFile, TenantsDir } from './tenants-dir.ts';

/** Who the peers of a server with tenants are, and what they may claim, dial and use. A server without tenants has none: its flags decide. */
export interface Admission {
  /** Who agents and callers are, by what they show. */
  readonly identify: Identify;
  /** @throws NotAuthorised if an agent may not be what it claims. `Grant.watch` looks again after each change */
  admit(grant: Grant, claim: Claim): void;
  /** Why a dial is refused, by its tenant's file; undefined if it is not. @param addresses see `DialPolicy` */
  permits(request: DialRequest, addresses?: readonly string[]): DialError | undefined;
  /** What a tenant may use of this process, as its file has it now. */
  limits(tenant: string): TenantLimits;
  /** Calls the listener after each change of the tenants in force, their files' contents or the program's CA bundles. @returns a function that stops this */
  changed(listener: (change: TenantsChange) => void): () => void;
  /** Reports with the problems of tenants' files what somebody finds of what they say of API servers, as it is when it is asked. */
  foundOfApiServers(found: (tenant: Tenant) => Iterable<ApiServerFault>): void;
  /** Whether there are no tenants' files, and its only file is --caller-token-file. */
  readonly alone: boolean;
  /** Tenants in force, by their files. */
  readonly tenants: Pick<Tenants, 'all' | 'get' | 'size' | 'byServerName' | 'byApiServerName' | 'nameApiServers'>;
  /** Files that cannot be used. The last good text of such a file may still be in force. */
  readonly problems: readonly FileProblems[];
  /** What the files have Prometheus scrape. */
  readonly scraped: Pick<ScrapeTargets, 'of' | 'failures'>;
}

export interface AdmissionOptions {
  /** The directory of the tenants' files: --tenants-dir. */
  readonly dir: string;
  /** The only file there, and how it is read: --caller-token-file. */
  readonly only?: OnlyFile | undefined;
  /** Of a hub: where it is reached. No API server of a tenant is there. */
  readonly own?: OwnPlaces | undefined;
  /** Paths of the program's own CA bundles; empty: there is none. */
  readonly bundles: { readonly agent: string; readonly caller: string };
  /** How long an API server's answer about a token is valid, in milliseconds. */
  readonly rememberMs: number;
  /** Whose tokens are verified here: agents' at hubs, callers' at gateways. */
  readonly tokensOf: readonly Principal['role'][];
  readonly events: PlaneEvents;
  /** Ends what was started here. */
  readonly closing: { defer(close: () => void): void };
}

/**
 * Follows the tenants of a directory.
 * @throws Error if the directory or one of the program's CA bundles cannot be read
 */
export async function startAdmission(options: AdmissionOptions): Promise<Admission> {
  const { closing, events, rememberMs, tokensOf } = options;
  const dir = resolve(options.dir);
  const alone = options.only !== undefined;
  const path = (named: string) => resolve(dir, named);
  const listeners = new Set<(change: TenantsChange) => void>();
  const guarded = guarding((error) => void events.emit('fault', 'tenants', '', error));
  const changed = (change: TenantsChange) => {
    const names = [...change.changed, ...change.gone];
    for (const each of tokens) each.update(names);
    grants.review(names);
    scraped.forget(names);
    for (const listener of listeners) guarded(listener)(change);
  };
  const problems = () => [...directory.problems, ...tokens.flatMap((each) => each.problems)];
  const report = problemReporter(events);
  let found: (tenant: Tenant) => Iterable<ApiServerFault> = () => [];
  const directory = new TenantsDir({
    dir,
    only: options.only,
    own: options.own,
    found: (tenant) => found(tenant),
    changed(change) {
      changed(change);
      events.emit('tenants', { ...change, inForce: tenants.size });
    },
    failing: () => report(problems()),
  });
  closing.defer(() => directory.close());
  const { tenants } = directory;
  const tenant = (name: string) => tenants.get(name);
  const scraped = new ScrapeTargets({ tenants, path });
  closing.defer(() => scraped.close());
  const grants = new Grants({ tenant });
  closing.defer(() => grants.close());
  const renewed = (names: readonly string[]) => {
    grants.review(names);
    report(problems());
  };
  const judges = Object.fromEntries(
    tokensOf.map((role) => [role, new TenantTokens({ role, tenant, path, rememberMs, changed: renewed })]),
  ) as { readonly [Role in Principal['role']]?: TenantTokens };
  const tokens = Object.values(judges);
  closing.defer(() => {
    for (const each of tokens) each.close();
  });
  await directory.read().catch((error: Error) => {
    const what = alone ? `the directory of --caller-token-file, ${dir},` : `--tenants-dir ${dir}`;
    throw new Error(`${what} cannot be read: ${error.message}`, { cause: error });
  });
  const bundles = new ProgramBundles({
    paths: options.bundles,
    changed: () => changed({ changed: [...tenants.all].map(({ name }) => name), gone: [] }),
    events,
  });
  closing.defer(() => bundles.close());
  return {
    identify: identifyBy({
      ...{ tenants, grants, tokens: judges, alone },
      bundles: (role) => bundles.of(role),
    }),
    admit({ tenant, principal }, claim) {
      const fault = claimFault(tenant, principal, claim);
      if (fault) throw new NotAuthorised(`${tenant.path}: ${fault.why}`, { rule: fault.rule, principal });
    },
    permits(request, addresses) {
      const found = tenant(request.tenant);
      if (found) return dialRefusal(found, request, addresses);
      const text = `there is no tenant ${request.tenant}: no file in --tenants-dir names it`;
      return new DialError('http_request_denied', text);
    },
    // A tenant whose file was just removed is refused elsewhere.
    limits: (name) => tenant(name)?.limits ?? DEFAULT_LIMITS,
    changed(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    foundOfApiServers(listener) {
      found = listener;
    },
    alone,
    tenants,
    scraped,
    get problems() {
      return problems();
    },
  };
}

/** Why a tenant's file forbids a dial; undefined if it does not. */
function dialRefusal(
  { path, policy }: Tenant,
  request: DialRequest,
  addresses?: readonly string[],
): DialError | undefined {
  const { allowed, rule: named } = policy.verdict(request.destination, callerName(request), addresses);
  if (allowed) return undefined;
  const rule = `${path}: dial.${named || 'allow'}`;
  const destination = formatDestination(request.destination);
  const text = named === '' ? `no rule of ${rule} allows ${destination}` : `${rule} forbids ${destination}`;
  const cause = new NotAuthorised(text, { rule, principal: request.caller?.principal, destination });
  return new DialError('destination_ip_prohibited', text, { cause });
}

/** Returns what emits an event for each problem of the tenants' files, once. */
function problemReporter(events: PlaneEvents): (problems: readonly FileProblems[]) => void {
  let reported = new Set<string>();
  return (problems) => {
    const texts = new Set<string>();
    for (const { path, problems: found, kept } of problems) {
      for (const problem of found) {
        const text = problemText(path, problem);
        texts.add(text);
        if (!reported.has(text)) events.emit('tenants:failure', text, kept);
      }
    }
    reported = texts;
  };
}
