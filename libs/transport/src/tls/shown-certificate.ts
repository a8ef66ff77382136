import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { type Presented, presentedBy } from '@isthmus/runtime';

/** The certificate that a client of our TLS server showed, with what it sent besides; undefined if it showed none. */
export function shownCertificate(socket: Socket): Presented | undefined {
  return socket instanceof TLSSocket ? presentedBy(socket) : undefined;
}

/** The server name that a client sent (SNI); undefined if it sent none. */
export function serverNameOf(socket: Socket): string | undefined {
  const { servername } = socket as Partial<TLSSocket>;
  return servername || undefined;
}
