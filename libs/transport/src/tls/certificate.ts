import type { X509Certificate } from 'node:crypto';
import type { TLSSocket } from 'node:tls';
import { type CertificateUse, dnsNames, missingPurpose } from '@isthmus/runtime';
import { issuerOf, nameOf, printable, subjectOf } from '@isthmus/tunnel';

/** What a certificate must have, besides being valid now and issued by a trusted authority. */
export interface Wanted {
  readonly use: CertificateUse;
  /** A name that it must have (subjectAltName, DNS). */
  readonly role?: string | undefined;
}

/** `CN=a,O=b, serial 01AB`, as both ends write it. */
export function describe(certificate: X509Certificate): string {
  return `${nameOf(certificate)}, serial ${certificate.serialNumber}`;
}

/**
 * Returns why a certificate is not accepted, or undefined if it is. OpenSSL stops at its first finding and rustls names none, so dates
 * and purposes are checked here.
 * @param untrusted what the runtime found wrong with its chain. Unset: nothing
 */
export function faultOf(
  certificate: X509Certificate,
  untrusted: string | undefined,
  { use, role }: Wanted,
): string | undefined {
  const now = Date.now();
  const [from, to] = [Date.parse(certificate.validFrom), Date.parse(certificate.validTo)];
  if (from > now) return `it is not valid before ${new Date(from).toISOString()}: is the clock right?`;
  if (to < now) return `it expired at ${new Date(to).toISOString()}: renew it`;
  const purpose = missingPurpose(certificate, use);
  if (purpose) return `its extended key usage lacks ${purpose}: issue it with extended key usage ${purpose}`;
  if (untrusted !== undefined) return chainFault(certificate, untrusted);
  if (role !== undefined && !dnsNames(certificate).includes(role)) {
    return `it does not prove the role ${role} (subjectAltName DNS:${role}); its names: ${printable(dnsNames(certificate).join(', ')) || 'none'}`;
  }
  return undefined;
}

function chainFault(certificate: X509Certificate, untrusted: string): string {
  const by = issuerOf(certificate);
  if (/^(UNABLE_TO|SELF_SIGNED|DEPTH_ZERO|CERT_SIGNATURE|UNKNOWN)/.test(untrusted)) {
    return `it was issued by ${by}, which is not a trusted authority here`;
  }
  if (untrusted === 'CERT_HAS_EXPIRED') return `an authority above it, ${by} or further up, has expired`;
  return `it was issued by ${by}, and cannot be verified (${untrusted})`;
}

/**
 * Returns the subject of a peer's certificate as one line, or undefined if the peer showed none. (`getPeerCertificate` makes an object
 * of all that is in the certificate and hashes it three times, which takes a twentieth of a handshake.)
 */
export function peerSubject(socket: TLSSocket): string | undefined {
  const certificate = socket.getPeerX509Certificate();
  return certificate && subjectOf(certificate);
}
