import {
  type Certificate,
  CertificatePool,
  deleteFrom,
  getOrPut,
  type RevocationList,
  type Trust,
} from '@isthmus/runtime';
import { ADMISSION } from './defaults.ts';

/** The certificate authorities of a CA bundle. An authority is its name and key (`Certificate.authorityId`), whichever certificate it has. */
export class TrustSet extends CertificatePool {
  /**
   * @param pem one certificate or more; text between them is skipped, and so are those whose block is damaged
   * @throws Error if there is none, or one that is malformed or no authority
   */
  constructor(pem: string) {
    const { all, skipped, weak } = CertificatePool.authorities(pem);
    if (all.length > ADMISSION.authorities)
      throw new Error(`there are ${all.length} certificates in it: at most ${ADMISSION.authorities} are allowed`);
    for (const [index, { isAuthority, maySign, commonNames }] of all.entries())
      if (!isAuthority || !maySign)
        throw new Error(
          `certificate ${index + 1} in it (${commonNames[0] || 'without a common name'}) is of no certificate authority (basicConstraints, keyUsage)`,
        );
    super(all, skipped, weak);
  }

  /** What it holds are authorities, not agents or callers. */
  override has(_certificate: Certificate): boolean {
    return false;
  }

  hasAuthority(id: string): boolean {
    return this.all.some(({ authorityId }) => authorityId === id);
  }
}

/** Authorities of one name whose keys have one name, by the tenants that list them. */
type Listed = Map<string, Certificate[]>;

/** The authorities of all tenants: says whose authority issued a certificate. */
export class AuthorityIndex implements Trust {
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
      if (byKey) deleteFrom(byKey, keyId, owner);
      if (byKey?.size === 0) this.#bySubject.delete(subject);
      deleteFrom(this.#owners, id, owner);
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

/** What a revocation list can name: the serial of a certificate, and the authority that signed it. */
export interface Signed {
  readonly authority: string;
  readonly serial: string;
}

/** What the lists of a CA bundle revoke. */
export class Revocations {
  readonly #byAuthority = new Map<string, Set<string>>();
  /** When the first of the lists should have been replaced, in milliseconds since the epoch. */
  readonly nextUpdate: number;

  /** @throws Error if no authority of the bundle signed one of the lists */
  constructor(lists: readonly RevocationList[], trust: TrustSet) {
    for (const list of lists) {
      const signers = trust.all.filter((each) => each.subject === list.issuer && list.signedBy(each));
      if (signers.length === 0)
        throw new Error("no authority in ca signed its revocation list: put the issuer's certificate into ca");
      for (const { authorityId: id } of signers) {
        const known = getOrPut(this.#byAuthority, id, () => new Set<string>());
        for (const serial of list.serials) known.add(serial);
      }
    }
    this.nextUpdate = Math.min(...lists.map(({ nextUpdate = Number.POSITIVE_INFINITY }) => nextUpdate));
  }

  /** The first of these certificates that is revoked. */
  find(signed: readonly Signed[]): Signed | undefined {
    return signed.find(({ authority, serial }) => this.#byAuthority.get(authority)?.has(serial));
  }
}
