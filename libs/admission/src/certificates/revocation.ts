import type { RevocationList } from '@isthmus/runtime';
import type { Signed } from './chain.ts';
import type { TrustSet } from './trust-set.ts';

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
        const known = this.#byAuthority.get(id) ?? new Set();
        this.#byAuthority.set(id, known);
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
