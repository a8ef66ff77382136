import type { CertificateFields } from '@isthmus/runtime';
import { getOrPut } from '@isthmus/tunnel';
import type { Authority, Trust } from './trust-set.ts';

/** Authorities of one name whose keys have one name, by the tenants that list them. */
type Listed = Map<string, Authority[]>;

/** The authorities of all tenants: says whose authority issued a certificate. */
export class AuthorityIndex implements Trust {
  /** By the authority's name, then by its key's name. Every kubeadm cluster's authority is called `kubernetes`. */
  readonly #bySubject = new Map<string, Map<string, Listed>>();
  readonly #owners = new Map<string, Set<string>>();

  /** @param owner a tenant's name */
  add(owner: string, authorities: readonly Authority[]): void {
    for (const authority of authorities) {
      const { id, subject, keyId } = authority;
      const byKey = getOrPut(this.#bySubject, subject, () => new Map<string, Listed>());
      const listed: Listed = getOrPut(byKey, keyId, () => new Map());
      const own = listed.get(owner);
      // Most have one, and an array that grows has room for 17.
      listed.set(owner, own ? [...own, authority] : [authority]);
      getOrPut(this.#owners, id, () => new Set<string>()).add(owner);
    }
  }

  /** @param authorities all that the owner has */
  remove(owner: string, authorities: readonly Authority[]): void {
    for (const { id, subject, keyId } of authorities) {
      const byKey = this.#bySubject.get(subject);
      if (byKey) removeFrom(byKey, keyId, owner);
      if (byKey?.size === 0) this.#bySubject.delete(subject);
      removeFrom(this.#owners, id, owner);
    }
  }

  has(authority: string): boolean {
    return this.#owners.has(authority);
  }

  /** The tenants that trust an authority. */
  owners(authority: string): ReadonlySet<string> {
    return this.#owners.get(authority) ?? NOBODY;
  }

  /**
   * A certificate that names its issuer's key is matched with that key, and with authorities that do not name theirs. Tenants that share
   * an authority have the same certificate of it, or a renewed one.
   */
  *issuersOf({ issuer, issuerKeyId }: CertificateFields): Iterable<Authority> {
    const byKey = this.#bySubject.get(issuer);
    if (!byKey) return;
    const told = new Set<string>();
    for (const key of issuerKeyId === '' ? [...byKey.keys()] : [issuerKeyId, ''])
      for (const authorities of byKey.get(key)?.values() ?? [])
        for (const authority of authorities) {
          if (told.has(authority.base64)) continue;
          told.add(authority.base64);
          yield authority;
        }
  }
}

const NOBODY: ReadonlySet<string> = new Set();

function removeFrom<K>(sets: Map<K, { readonly size: number; delete(owner: string): boolean }>, key: K, owner: string) {
  const set = sets.get(key);
  set?.delete(owner);
  if (set?.size === 0) sets.delete(key);
}
