import type { Certificate } from '@isthmus/runtime';
import { getOrPut } from '@isthmus/tunnel';
import type { TenantTrust } from './trust-set.ts';

/** Authorities of one name whose keys have one name, by the tenants that list them. */
type Listed = Map<string, Certificate[]>;

/** The authorities of all tenants: says whose authority issued a certificate. */
export class AuthorityIndex implements TenantTrust {
  /** By the authority's name, then by its key's name. Every kubeadm cluster's authority is called `kubernetes`. */
  readonly #bySubject = new Map<string, Map<string, Listed>>();
  readonly #owners = new Map<string, Set<string>>();

  /** @param owner a tenant's name */
  add(owner: string, authorities: readonly Certificate[]): void {
    for (const authority of authorities) {
      const { authorityId: id, subject, keyId } = authority;
      const byKey = getOrPut(this.#bySubject, subject, () => new Map<string, Listed>());
      const listed: Listed = getOrPut(byKey, keyId, () => new Map());
      const own = listed.get(owner);
      // Most have one, and an array that grows has room for 17.
      listed.set(owner, own ? [...own, authority] : [authority]);
      getOrPut(this.#owners, id, () => new Set<string>()).add(owner);
    }
  }

  /** @param authorities all that the owner has */
  remove(owner: string, authorities: readonly Certificate[]): void {
    for (const { authorityId: id, subject, keyId } of authorities) {
      const byKey = this.#bySubject.get(subject);
      if (byKey) removeFrom(byKey, keyId, owner);
      if (byKey?.size === 0) this.#bySubject.delete(subject);
      removeFrom(this.#owners, id, owner);
    }
  }

  /** What it holds are authorities, not agents or callers. */
  has(_certificate: Certificate): boolean {
    return false;
  }

  hasAuthority(id: string): boolean {
    return this.#owners.has(id);
  }

  /** The tenants that trust an authority. */
  owners(authority: string): ReadonlySet<string> {
    return this.#owners.get(authority) ?? NOBODY;
  }

  /**
   * A certificate that names its issuer's key is matched with that key, and with authorities that do not name theirs. Tenants that share
   * an authority have the same certificate of it, or a renewed one. (Go would try keys of other names last. Here they are other tenants'.)
   */
  *issuersOf({ issuer, issuerKeyId }: Certificate): Iterable<Certificate> {
    const byKey = this.#bySubject.get(issuer);
    if (!byKey) return;
    const told = new Set<string>();
    for (const key of issuerKeyId === '' ? [...byKey.keys()] : [issuerKeyId, ''])
      for (const authorities of byKey.get(key)?.values() ?? [])
        for (const authority of authorities) {
          const der = authority.raw.toString('latin1');
          if (told.has(der)) continue;
          told.add(der);
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
