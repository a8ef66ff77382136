import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { remoteOf } from '../listen.ts';
import { peerSubject } from '../tls.ts';
import { socketOf } from './internals.ts';

/** The other side of a server's call. */
export interface GrpcPeer {
  /** Undefined when it is gone already. */
  readonly socket: Socket | undefined;
  /** `host:port`, or `uds`. */
  readonly remote: string;
  /** The subject of its certificate, when it showed one. */
  readonly subject: string | undefined;
}

export function peerOf(call: object): GrpcPeer {
  const socket = socketOf(call);
  return {
    socket,
    remote: socket ? remoteOf(socket) : 'gone',
    subject: socket instanceof TLSSocket ? peerSubject(socket) : undefined,
  };
}
