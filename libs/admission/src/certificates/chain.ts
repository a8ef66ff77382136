import { type Certificate, chainsOf, type Presented } from '@isthmus/runtime';
import type { TenantTrust } from './trust-set.ts';

/** A client's certificate that was verified, with the authorities above it. */
export interface Chain {
  readonly leaf: Certificate;
  /** Milliseconds since the epoch: when the first of its certificates expires. */
  readonly expires: number;
  /** Authorities from the one that signed it upwards, on all ways to one that is trusted; the shortest way comes first. */
  readonly authorities: readonly string[];
  /** What a list of revoked certificates could name: by authority, the serial that it signed. */
  readonly signed: readonly Signed[];
}

export interface Signed {
  readonly authority: string;
  readonly serial: string;
}

/**
 * Verifies a client's certificate against the authorities of one tenant alone: TLS has verified it against nothing.
 * @throws CertificateRejected
 */
export function verifyChain(presented: Presented, trust: TenantTrust, now: number): Chain {
  const chains = [...chainsOf(presented, trust, { use: 'client', now })];
  const signed = new Map<string, Signed>();
  for (const chain of chains)
    for (const [below, { authorityId: authority }] of chain.slice(1).entries()) {
      const { serial } = chain[below] as Certificate;
      signed.set(`${authority} ${serial}`, { authority, serial });
    }
  return {
    leaf: presented.leaf,
    expires: Math.min(...(chains[0] ?? []).map(({ validTo }) => validTo)),
    authorities: [...new Set([...signed.values()].map(({ authority }) => authority))],
    signed: [...signed.values()],
  };
}
