import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { certificateOf } from './certificate.ts';
import { CertificateRejected, MOST_SENT_CERTIFICATES, type Presented } from './verify.ts';

/** What all of a peer's certificates may measure together, in bytes, as in verification-bound.ts. */
const MOST_BYTES = 16 * 1024;

/** Of connections that are open. Only the first reading gets what a peer sent besides its own. */
const read = new WeakMap<Socket, Presented>();

/**
 * Reads the certificate that a peer showed, whose key it has proven to hold, and the others that it sent, after the handshake; undefined if
 * it showed none. Deno 2.9 knows only the first certificate behind the peer's own, so there a chain may have one intermediate authority
 * that the bundle lacks.
 * @throws CertificateRejected if one of them is malformed
 */
export function presentedBy(socket: TLSSocket): Presented | undefined {
  const before = read.get(socket);
  if (before) return before;
  const leaf = socket.getPeerX509Certificate();
  if (!leaf) return undefined;
  const sent: Buffer[] = [];
  // These are the certificates in the order in which they came, not issuers.
  for (let next = leaf.issuerCertificate; next && sent.length < MOST_SENT_CERTIFICATES; next = next.issuerCertificate)
    sent.push(next.raw);
  if (sent.reduce((sum, { length }) => sum + length, leaf.raw.length) > MOST_BYTES)
    throw new CertificateRejected(`it sent more than ${MOST_BYTES / 1024} KiB of certificates`);
  try {
    const presented = { leaf: certificateOf(leaf.raw), sent: sent.map(certificateOf) };
    read.set(socket, presented);
    return presented;
  } catch (cause) {
    throw new CertificateRejected(`a certificate that was sent is malformed: ${(cause as Error).message}`, { cause });
  }
}
