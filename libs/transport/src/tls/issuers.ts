import { X509Certificate } from 'node:crypto';
import type { ReadTls } from '@isthmus/runtime';

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/**
 * What a server shows: its certificate, and behind it those of its issuers that stand among the authorities. Where a file holds
 * nothing but the server's own, OpenSSL looks for these at each handshake and verifies every signature of what it found, an eighth
 * of all that a handshake takes; a chain that it is given it sends as it is. A peer is sent the same either way.
 */
export function withIssuers({ cert, ca }: ReadTls): Buffer | undefined {
  if (!cert || !ca || certificatesIn(cert).length !== 1) return cert;
  try {
    const issuers = issuersOf(new X509Certificate(cert), certificatesIn(ca));
    return Buffer.concat([cert, ...issuers.map((issuer) => Buffer.from(`\n${issuer}`))]);
  } catch {
    // An authority that cannot be read, or has a key of an unknown kind: OpenSSL passes over what it cannot use.
    return cert;
  }
}

function issuersOf(leaf: X509Certificate, authorities: readonly string[]): X509Certificate[] {
  // Of one that was renewed with its key the latest, as OpenSSL itself passes over those that have ended.
  const known = authorities.map((pem) => new X509Certificate(pem)).sort((a, b) => ends(b) - ends(a));
  const chain: X509Certificate[] = [];
  for (let last: X509Certificate | undefined = leaf; last && !last.checkIssued(last); last = chain.at(-1)) {
    const issued = last;
    // Authorities of one name differ in their keys.
    const issuer = known.find((one) => !chain.includes(one) && issued.checkIssued(one) && issued.verify(one.publicKey));
    if (!issuer) break;
    chain.push(issuer);
  }
  return chain;
}

function ends({ validTo }: X509Certificate): number {
  return Date.parse(validTo);
}

function certificatesIn(pem: Buffer): string[] {
  return pem.toString('latin1').match(CERTIFICATE) ?? [];
}
