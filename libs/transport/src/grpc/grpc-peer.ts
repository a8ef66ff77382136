import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { remoteOf } from '@isthmus/runtime';
import { peerSubject } from '../tls/certificate.ts';

/** The other side of a server's call. */
export interface GrpcPeer {
  readonly socket: Socket;
  /** `host:port`, or `uds`. */
  readonly remote: string;
  /** The subject of its certificate, if it showed one. */
  readonly subject: string | undefined;
}

export function peerOf(socket: Socket): GrpcPeer {
  return { socket, remote: remoteOf(socket), subject: socket instanceof TLSSocket ? peerSubject(socket) : undefined };
}
