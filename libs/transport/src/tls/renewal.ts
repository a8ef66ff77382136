import { constants } from 'node:crypto';
import { createServer, type Server, type TlsOptions } from 'node:tls';
import { type ReadTls, TlsRenewal, type TlsSettings } from '@isthmus/runtime';
import type { CertificatePlace, PlaneEvents } from '@isthmus/tunnel';
import { admit, type Doors } from '../listen/admit.ts';
import { describe } from './certificate.ts';
import { withIssuers } from './issuers.ts';

/**
 * Nobody resumes: API servers and Go agents have no cache for it, and our agents may come with a new certificate. A ticket would hold
 * the peer's certificate, and OpenSSL makes and reads back two for each connection: a third of a handshake. (With TLS 1.3 it sends two
 * all the same, but empty ones.)
 */
const NO_TICKETS = constants.SSL_OP_NO_TICKET;

export interface CertificateOptions {
  /** Where it is shown. */
  readonly where: CertificatePlace;
  readonly files: TlsSettings;
  /** Gets `certificate` for each new certificate in force, and `certificate:failure` for files that cannot be used. */
  readonly events: PlaneEvents;
}

/**
 * A TLS server that follows its files: new connections get what they contain now. While the files cannot be used, such as one of two
 * that are being renewed, the last usable content stays in force. With authorities among the files, it asks for a client certificate.
 * Throws the file system's error for a file that cannot be read, and OpenSSL's for one that holds nothing usable.
 */
export function tlsServer(certificate: CertificateOptions, options: TlsOptions, doors: Omit<Doors, 'fault'>): Server {
  const { where, events, files } = certificate;
  const asks = Boolean(files.ca);
  const shown = (read: ReadTls) => ({ ...options, ...read, cert: withIssuers(read), secureOptions: NO_TICKETS });
  const renewal = renewalOf(certificate, (read) => server.setSecureContext(shown(read)));
  const server = createServer({ ...shown(renewal.begin()), requestCert: asks, rejectUnauthorized: false });
  admit(server, asks, { ...doors, fault: (remote, error) => events.emit('fault', where, remote, error) });
  // It may listen again after it was closed.
  server.on('listening', () => renewal.watch());
  server.on('close', () => renewal.stop());
  return server;
}

/**
 * Reports the certificate that this process shows to servers. `secureContext` reads its files for each connection anyway, but a
 * connection may last for months. Without a certificate it does nothing. Returns a function that stops it.
 */
export function watchCertificate(certificate: CertificateOptions): () => void {
  if (!certificate.files.cert) return () => {};
  const renewal = renewalOf(certificate, () => {});
  renewal.look();
  renewal.watch();
  return () => renewal.stop();
}

function renewalOf({ where, files, events }: CertificateOptions, use: (read: ReadTls) => void): TlsRenewal {
  return new TlsRenewal({
    files,
    use,
    inForce(leaf) {
      const about = { name: describe(leaf), validFrom: Date.parse(leaf.validFrom) };
      events.emit('certificate', where, Date.parse(leaf.validTo), about);
    },
    failed: (error) => events.emit('certificate:failure', where, error),
  });
}
