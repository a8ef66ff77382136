import type { Principal } from '@isthmus/tunnel';
import type { Credentials } from '../credentials.ts';
import type { TenantFile } from '../tenant-file/schema.ts';
import type { Revocations } from './revocation.ts';
import type { TrustSet } from './trust-set.ts';

/** A way in by certificate, as a tenant's file lists it. */
export interface CertificateWay {
  /** `acme.yaml: agents[0].certificates`. */
  readonly rule: string;
  /** Unset: the program's own CA bundle verifies. */
  readonly trust: TrustSet | undefined;
  /** The trust domain that SPIFFE IDs must have. Unset: common names will do. */
  readonly trustDomain: string | undefined;
  /** Certificates that are revoked. Unset: the file names no list. */
  readonly revocations: Revocations | undefined;
  /** Whether other tenants may have the same authorities. */
  readonly shared: boolean;
  /** The only names allowed. Unset: all. */
  readonly names: ReadonlySet<string> | undefined;
}

/**
 * Lists the ways in by certificate for agents, or for callers.
 * @param path of the tenant's file
 * @throws Error if a revocation list is not of the CA beside it
 */
export function certificateWays(
  path: string,
  file: TenantFile,
  role: Principal['role'],
  credentials: Credentials,
): CertificateWay[] {
  const list = `${role}s` as const;
  return (file[list] ?? []).flatMap(({ certificates }, index) => {
    if (!certificates) return [];
    const at = `${list}[${index}].certificates`;
    const { names } = certificates as { readonly names?: readonly string[] };
    return {
      rule: `${path}: ${at}`,
      trust: credentials.trust(`${at}.ca`),
      trustDomain: certificates.trustDomain,
      revocations: credentials.revocations(at),
      shared: certificates.shared ?? false,
      names: names && new Set(names),
    };
  });
}
