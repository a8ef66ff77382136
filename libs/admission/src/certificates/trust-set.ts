import { type Certificate, CertificatePool, type Trust } from '@isthmus/runtime';

/** The most certificates of one CA bundle. */
const MOST_AUTHORITIES = 50;

/** Authorities of tenants. An authority is its name and key (`Certificate.authorityId`), whichever certificate it has. */
export interface TenantTrust extends Trust {
  hasAuthority(id: string): boolean;
}

/** The certificate authorities of a CA bundle. */
export class TrustSet extends CertificatePool implements TenantTrust {
  /**
   * @param pem one certificate or more; text between them is skipped, and so are those that cannot be read
   * @throws Error if there is none, or one that is no authority
   */
  constructor(pem: string) {
    const { all, skipped } = CertificatePool.of(pem);
    if (all.length === 0)
      throw new Error(`there is no certificate (PEM) in it${skipped.map((each) => `: ${each}`).join('')}`);
    if (all.length > MOST_AUTHORITIES)
      throw new Error(`there are ${all.length} certificates in it: at most ${MOST_AUTHORITIES} are allowed`);
    for (const [index, { isAuthority, maySign, commonNames }] of all.entries())
      if (!isAuthority || !maySign)
        throw new Error(
          `certificate ${index + 1} in it (${commonNames[0] || 'without a common name'}) is of no certificate authority (basicConstraints, keyUsage)`,
        );
    super(all, skipped);
  }

  /** What it holds are authorities, not agents or callers. */
  override has(_certificate: Certificate): boolean {
    return false;
  }

  hasAuthority(id: string): boolean {
    return this.all.some(({ authorityId }) => authorityId === id);
  }
}
