import { deleteFrom, getOrPut } from '@isthmus/runtime';
import type { Principal } from '@isthmus/tunnel';
import { type CertificateWay, type Credentials, reviewRules } from './credentials.ts';
import { ADMISSION } from './defaults.ts';
import type { Passwords } from './passwords.ts';
import { comparableHost } from './patterns.ts';
import type { Problem } from './tenant-file.ts';
import type { TenantFile } from './tenant-schema.ts';
import { keyText, quoted } from './tokens.ts';

/** What a tenant alone may have. */
export interface Exclusive {
  readonly what: string;
  /** What makes it that. Default: `what`. */
  readonly key?: string;
  /** The part of it that is claimed: different parts do not clash. Unset: all of it. */
  readonly part?: string | undefined;
  /** Where its file says so. */
  readonly at: string;
  /** Whether others may have it too, if they say so as well. */
  readonly shared?: boolean;
  /** How two tenants can both have it. */
  readonly fix?: string;
}

/** What another file has, and where a file claims it. */
export type Clash = Pick<Problem, 'at' | 'message'>;

/** A file, and what its tenant alone is to have. */
export interface Claimed {
  readonly path: string;
  readonly claimed: readonly Exclusive[];
}

interface Place {
  readonly key: string;
  readonly part: string | undefined;
  readonly shared: boolean;
}

/** Who has what a tenant alone may have: finds what two tenants' files both claim. */
export class Clashes {
  /** By the text of a key, or of a part of it: the paths that have it, and whether they share it. If there are several, all do. */
  readonly #holders = new Map<string, Map<string, boolean>>();
  /** By key: the parts of it that somebody has. */
  readonly #parts = new Map<string, Set<string>>();
  /** By path. */
  readonly #held = new Map<string, readonly Place[]>();

  /** Notes what a file claims, in place of what it claimed before. @returns what another one has; then nothing was noted */
  take(path: string, claimed: readonly Exclusive[]): Clash[] {
    const clashes = claimed.flatMap((each) => {
      const [other] = this.#others(path, each);
      if (other === undefined) return [];
      const { what, at, fix } = each;
      return [{ at, message: `${what} is in ${other} too${fix === undefined ? '' : `: ${fix}`}` }];
    });
    if (clashes.length > 0) return clashes;
    this.release(path);
    this.#hold(path, [...placesOf(claimed).values()]);
    return [];
  }

  #hold(path: string, places: readonly Place[]): void {
    for (const { key, part, shared } of places) {
      getOrPut(this.#holders, textOf({ key, part }), () => new Map()).set(path, shared);
      if (part !== undefined) getOrPut(this.#parts, key, () => new Set()).add(part);
    }
    if (places.length > 0) this.#held.set(path, places);
  }

  /** Others may have what a file claimed. */
  release(path: string): void {
    for (const { key, part } of this.#held.get(path) ?? []) {
      const text = textOf({ key, part });
      deleteFrom(this.#holders, text, path);
      if (part !== undefined && !this.#holders.has(text)) deleteFrom(this.#parts, key, part);
    }
    this.#held.delete(path);
  }

  /** Whether a file has what it claims. */
  has(path: string): boolean {
    return this.#held.has(path);
  }

  /**
   * Takes what files claim, each only with all that it claims. Of files that claim the same, the first in the list gets it.
   * @returns files that keep what they had, and why
   */
  settle<T extends Claimed>(due: readonly T[]): ReadonlyMap<T, readonly Clash[]> {
    const had = new Map(due.map(({ path }) => [path, this.#held.get(path) ?? []]));
    const kept = new Set<T>();
    // Those that keep what they had come first. They may take it from others, which then keep what they had, too.
    for (let known = -1; known < kept.size; ) {
      known = kept.size;
      for (const { path } of due) this.release(path);
      for (const { path } of kept) this.#hold(path, had.get(path) ?? []);
      for (const each of due) if (!kept.has(each) && this.take(each.path, each.claimed).length > 0) kept.add(each);
    }
    // What a file clashed with may be free again, because another one got back what it had.
    let left = [...kept];
    for (let tries = 1; ; tries++) {
      const refused = new Map<T, readonly Clash[]>();
      for (const each of left) {
        const clashes = this.take(each.path, each.claimed);
        if (clashes.length > 0) refused.set(each, clashes);
      }
      if (refused.size === left.length || tries === ADMISSION.clashTries) return refused;
      left = [...refused.keys()];
    }
  }

  /** Others that have it, or a part that overlaps, and do not share it with this one. */
  *#others(path: string, { what, key = what, part, shared = false }: Exclusive): Generator<string> {
    for (const each of [undefined, ...(part === undefined ? (this.#parts.get(key) ?? []) : [part])]) {
      const holders = this.#holders.get(textOf({ key, part: each })) ?? [];
      for (const [other, shares] of holders) if (other !== path && !(shared && shares)) yield other;
    }
  }
}

/** By text. A file that lists something twice shares it only if it says so in both places. */
function placesOf(claimed: readonly Exclusive[]): Map<string, Place> {
  const places = new Map<string, Place>();
  for (const { what, key = what, part, shared = false } of claimed) {
    const text = textOf({ key, part });
    places.set(text, { key, part, shared: shared && (places.get(text)?.shared ?? true) });
  }
  return places;
}

function textOf({ key, part }: Pick<Place, 'key' | 'part'>): string {
  return part === undefined ? key : `${key}\0${part}`;
}

/** A tenant as far as others must not have the same. */
interface Claimant {
  readonly file: TenantFile;
  readonly credentials: Credentials;
  readonly passwords: Passwords;
  readonly certificates: Readonly<Record<'agent' | 'caller', readonly CertificateWay[]>>;
}

/** Lists what no other tenant may have, unless both say that they share it. */
export function exclusivesOf(tenant: Claimant): Exclusive[] {
  const { file, certificates } = tenant;
  const { server, apiServer, agents = [], callers = [] } = file;
  const claimed: Exclusive[] = [{ what: `tenant ${file.tenant}`, at: 'tenant' }];
  for (const [index, name] of (server?.serverNames ?? []).entries())
    claimed.push({ what: `server name ${comparableHost(name)}`, at: `server.serverNames[${index}]` });
  for (const [index, name] of (apiServer?.names ?? []).entries())
    claimed.push({ what: `server name ${comparableHost(name)}`, at: `apiServer.names[${index}]` });
  for (const [index, { port }] of agents.entries())
    if (port !== undefined) claimed.push({ what: `agents' port ${port}`, at: `agents[${index}].port` });
  for (const [index, { port, unixSocket }] of callers.entries()) {
    if (port !== undefined) claimed.push({ what: `callers' port ${port}`, at: `callers[${index}].port` });
    if (unixSocket !== undefined)
      claimed.push({ what: `unix socket ${unixSocket}`, at: `callers[${index}].unixSocket` });
  }
  for (const { at, trust, shared } of [...certificates.agent, ...certificates.caller])
    for (const { authorityId: id, subjectText: name } of trust?.all ?? [])
      claimed.push({
        what: `certificate authority ${name}`,
        key: id,
        at: `${at}.ca`,
        shared,
      });
  for (const [id, { at }] of tenant.passwords)
    claimed.push({ what: `the token ${id}`, at, fix: 'make another with isthmus tenants token' });
  return [...claimed, ...tokenClaims(tenant, 'agent'), ...tokenClaims(tenant, 'caller')];
}

/** Lists the tokens with which agents, or callers, prove that they are of a tenant. */
export function tokenClaims(tenant: Pick<Claimant, 'file' | 'credentials'>, role: Principal['role']): Exclusive[] {
  return [...tokensOf(tenant, role), ...reviewsOf(tenant, role)];
}

/**
 * Tokens that verify for two tenants would let an agent choose between them, by server name or port. Keys tell tenants apart, whatever
 * issuers are called. So do subjects: a tenant may take only a key's tokens of one subject.
 */
function tokensOf({ file, credentials }: Pick<Claimant, 'file' | 'credentials'>, role: Principal['role']): Exclusive[] {
  const list = `${role}s` as const;
  return (file[list] ?? []).flatMap(({ tokens }, index) => {
    if (!tokens) return [];
    const { issuer, audience, subject: part, jwksUrl, shared = false } = tokens;
    const at = `${list}[${index}].tokens`;
    const fix = 'let subject or audience differ, or say shared: true in both';
    const claim = (from: string, what: string, field: string): Exclusive => ({
      what: `${what} of issuer ${quoted(issuer)} for audience ${quoted(audience)}`,
      key: JSON.stringify(['tokens', issuer, audience, from]),
      at: `${at}.${field}`,
      ...{ part, shared, fix },
    });
    if (jwksUrl !== undefined) return [claim(new URL(jwksUrl).href, `the key set at ${jwksUrl}`, 'jwksUrl')];
    const keys = credentials.file(`${at}.keys`).keys ?? [];
    return keys.map((key) => claim(keyText(key), `token key ${quoted(key.id ?? 'without id')}`, 'keys'));
  });
}

function reviewsOf(
  { file, credentials }: Pick<Claimant, 'file' | 'credentials'>,
  role: Principal['role'],
): Exclusive[] {
  return reviewRules(file, role).flatMap(({ audience, users, shared, at }) => {
    const server = credentials.file(`${at}.kubeconfig`).apiServer;
    if (server === undefined) return [];
    const claim = (user: string, who: string, field: string) => ({
      what: `tokenReview of ${who} at ${server} for audience ${quoted(audience)}`,
      key: JSON.stringify(['tokenReview', server, audience, user]),
      at: `${at}.kubeconfig`,
      shared,
      fix: `let audience${field} differ, or say shared: true in both`,
    });
    if (!('namespace' in users)) return users.map((user) => claim(user, user, ' or names'));
    const { namespace, serviceAccount } = users;
    const user = `system:serviceaccount:${namespace}:${serviceAccount}`;
    return [claim(user, `${namespace}/${serviceAccount}`, ', namespace or serviceAccount')];
  });
}
