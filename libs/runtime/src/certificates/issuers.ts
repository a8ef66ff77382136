import type { ReadTls } from '../tls.ts';
import type { Certificate } from './certificate.ts';
import { CertificatePool, pemOf } from './pool.ts';

/**
 * Returns what a program sends: its certificate, followed by those of its issuers that are among the authorities. If a file has only the
 * program's own certificate, OpenSSL looks for the issuers at each handshake and verifies every signature that it finds, which is an
 * eighth of the whole handshake. A given chain it sends as it is. The peer gets the same either way.
 */
export function withIssuers({ cert, ca }: Pick<ReadTls, 'cert' | 'ca'>): ReadTls['cert'] {
  const [leaf, ...others] = cert ? CertificatePool.of(cert).all : [];
  if (!cert || !leaf || others.length > 0 || !ca) return cert;
  const issuers = issuersOf(leaf, CertificatePool.of(ca));
  return [cert.toString('latin1'), ...issuers.map(({ raw }) => pemOf(raw))].join('\n');
}

function issuersOf(leaf: Certificate, authorities: CertificatePool): Certificate[] {
  const chain: Certificate[] = [];
  for (let last: Certificate | undefined = leaf; last && !issuedItself(last); last = chain.at(-1)) {
    const issued: Certificate = last;
    // Of one that was renewed with the same key, the latest: OpenSSL itself skips expired ones.
    const latest = [...authorities.issuersOf(issued)].sort((a, b) => b.validTo - a.validTo);
    // Authorities of the same name differ in their keys.
    const issuer = latest.find((one) => !chain.includes(one) && issued.isSignedBy(one));
    if (!issuer) break;
    chain.push(issuer);
  }
  return chain;
}

function issuedItself(certificate: Certificate): boolean {
  return certificate.subject === certificate.issuer && certificate.isSignedBy(certificate);
}
