import { X509Certificate } from 'node:crypto';
import type { ReadTls } from '@isthmus/runtime';

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/**
 * Returns what a server sends: its certificate, followed by those of its issuers that are among the authorities. If a file has only the
 * server's own certificate, OpenSSL looks for the issuers at each handshake and verifies every signature that it finds, which is an
 * eighth of the whole handshake. A given chain it sends as it is. The peer gets the same either way.
 */
export function withIssuers({ cert, ca }: ReadTls): Buffer | undefined {
  if (!cert || !ca || certificatesIn(cert).length !== 1) return cert;
  try {
    const issuers = issuersOf(new X509Certificate(cert), certificatesIn(ca));
    return Buffer.concat([cert, ...issuers.map((issuer) => Buffer.from(`\n${issuer}`))]);
  } catch {
    // An authority that cannot be read, or has a key of an unknown kind. OpenSSL skips what it cannot use.
    return cert;
  }
}

function issuersOf(leaf: X509Certificate, authorities: readonly string[]): X509Certificate[] {
  // Of one that was renewed with the same key, the latest: OpenSSL itself skips expired ones.
  const known = authorities.map((pem) => new X509Certificate(pem)).sort((a, b) => ends(b) - ends(a));
  const chain: X509Certificate[] = [];
  for (let last: X509Certificate | undefined = leaf; last && !last.checkIssued(last); last = chain.at(-1)) {
    const issued = last;
    // Authorities of the same name differ in their keys.
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
