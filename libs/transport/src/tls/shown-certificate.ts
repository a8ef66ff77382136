import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';

/** The certificate that a peer showed, whose key it has proven to hold. */
export interface Shown {
  readonly leaf: X509Certificate;
  /** The other certificates that it sent, in its order. */
  readonly sent: readonly X509Certificate[];
}

/** How many of the certificates that a peer sends besides its own are taken. */
const MOST_SENT_CERTIFICATES = 8;

/** Of connections that are open. Only the first reading gets what a peer sent besides its own. */
const read = new WeakMap<Socket, Shown>();

/**
 * Reads the certificate that a client showed, after the handshake; undefined if it showed none. Deno 2.9 knows only the first certificate
 * behind the client's own, so there a chain may have one intermediate authority that the bundle lacks.
 */
export function readCertificate(socket: TLSSocket): Shown | undefined {
  const leaf = socket.getPeerX509Certificate();
  if (!leaf) return undefined;
  const sent: X509Certificate[] = [];
  // On a server, these are the certificates in the order in which they came.
  for (let next = leaf.issuerCertificate; next && sent.length < MOST_SENT_CERTIFICATES; next = next.issuerCertificate)
    sent.push(next);
  const shown = { leaf, sent };
  read.set(socket, shown);
  return shown;
}

/** The certificate that a client of our TLS server showed; undefined if it showed none. */
export function shownCertificate(socket: Socket): Shown | undefined {
  return read.get(socket);
}

/** The server name that a client sent (SNI); undefined if it sent none. */
export function serverNameOf(socket: Socket): string | undefined {
  const { servername } = socket as Partial<TLSSocket>;
  return servername || undefined;
}
