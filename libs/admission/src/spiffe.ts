/** What a SPIFFE ID of ours names (the URI SAN of a certificate: `spiffe://TRUST-DOMAIN/tenant/T/agent/A`). */
export interface SpiffeId {
  readonly trustDomain: string;
  readonly tenant: string;
  readonly role: 'agent' | 'caller' | 'gateway';
  readonly name: string;
}

/** The longest SPIFFE ID, in bytes (SPIFFE-ID section 2.3). */
const LONGEST_ID = 2048;

const PATTERN =
  /^spiffe:\/\/([a-z0-9._-]{1,255})\/tenant\/([a-zA-Z0-9._-]+)\/(agent|caller|gateway)\/([a-zA-Z0-9._-]+)$/;

/** Reads a SPIFFE ID (SPIFFE-ID section 2). @returns undefined for a URI that is none, or one of another shape than ours */
export function readSpiffeId(uri: string): SpiffeId | undefined {
  if (uri.length > LONGEST_ID) return undefined;
  const [, trustDomain, tenant, role, name] = PATTERN.exec(uri) ?? [];
  if (trustDomain === undefined || tenant === undefined || name === undefined) return undefined;
  // Segments of dots alone are not allowed: they would be relative.
  if ([tenant, name].some((segment) => /^\.{1,2}$/.test(segment))) return undefined;
  return { trustDomain, tenant, role: role as SpiffeId['role'], name };
}
