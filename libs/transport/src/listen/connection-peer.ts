import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { remoteOf } from '@isthmus/runtime';
import { peerSubject } from '../tls/certificate.ts';

/** The other side of a connection. */
export interface ConnectionPeer {
  readonly socket: Socket;
  /** `host:port`, or `uds`. */
  readonly remote: string;
  /** The subject of its certificate, if it showed one. */
  readonly subject: string | undefined;
  /** Ends the connection with its dials and tunnels, as closed by the plane. Tells the other side why where the protocol can. */
  end(reason: Error): void;
}

export function peerOf(socket: Socket, end: ConnectionPeer['end']): ConnectionPeer {
  const subject = socket instanceof TLSSocket ? peerSubject(socket) : undefined;
  return { socket, remote: remoteOf(socket), subject, end };
}
