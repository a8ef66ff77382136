import type { Socket } from 'node:net';
import type { Server, TLSSocket } from 'node:tls';
import { guarding, remoteOf } from '@isthmus/runtime';
import { describe, faultOf } from '../tls/certificate.ts';
import { handshakeError } from '../tls/handshake.ts';
import { turnAway } from './turn-away.ts';

/** Who comes through a TLS server, and who does not. */
export interface Doors {
  /** Takes a connection whose handshake is over, and whose certificate holds where one is asked for. */
  readonly accept: (socket: TLSSocket) => void;
  /** Told of every other. @param remote `address:port` */
  readonly refused: (remote: string, error: Error) => void;
  /** Called with an error that nobody else would catch: it ends the connection, not the process. */
  readonly fault: (remote: string, error: Error) => void;
  /** A name that each certificate must have (subjectAltName, DNS). */
  readonly role?: string | undefined;
}

/**
 * Lets in whom a TLS server may serve. Where it asks for certificates it judges them itself, after the handshake: the runtime
 * would end the connection without a word to either side, and what it knew of the peer would be gone by then.
 */
export function admit(server: Server, asks: boolean, { accept, refused, fault, role }: Doors): void {
  // A socket remembers where it comes from once it was asked; later, when it is gone, it cannot say.
  server.prependListener('connection', (socket: Socket) => void socket.remoteAddress);
  const guarded = (socket: TLSSocket, act: () => void) => {
    const failed = (error: Error) => {
      const remote = cameFrom(socket, belowOf(socket));
      socket.destroy();
      fault(remote, error);
    };
    guarding(failed)(act)();
  };
  const decide = (socket: TLSSocket) => {
    const why = asks ? faultOfClient(socket, role) : undefined;
    if (why === undefined) return accept(socket);
    refused(remoteOf(socket), new Error(why));
    turnAway(socket, why);
  };
  const fail = (error: Error, socket: TLSSocket) => {
    const below = belowOf(socket);
    refused(cameFrom(socket, below), handshakeError(error, below?.bytesRead !== 0));
    // Node leaves one that took too long open.
    socket.destroy();
  };
  server.on('secureConnection', (socket) => guarded(socket, () => decide(socket)));
  server.on('tlsClientError', (error, socket) => guarded(socket, () => fail(error, socket)));
}

function faultOfClient(socket: TLSSocket, role: string | undefined): string | undefined {
  const certificate = socket.getPeerX509Certificate();
  if (!certificate) return 'no client certificate was shown, and this port asks for one';
  const untrusted = socket.authorized ? undefined : untrustedFor(socket);
  const fault = faultOf(certificate, untrusted, { use: 'client', role });
  return fault && `the client certificate of ${describe(certificate)} is refused: ${fault}`;
}

/** OpenSSL's code, such as CERT_HAS_EXPIRED. Node's types say that it is an Error, and it is one in Deno. */
export function untrustedFor({ authorizationError }: TLSSocket): string {
  const found: unknown = authorizationError;
  return (found as NodeJS.ErrnoException | null)?.code ?? String(found);
}

/** The socket that carries one of TLS. */
function belowOf(socket: TLSSocket): Socket | undefined {
  return (socket as unknown as { readonly _parent?: Socket })._parent;
}

/** A TLS socket that failed has lost its handle, and with it the address. The one below it has not. */
function cameFrom(socket: TLSSocket, below: Socket | undefined): string {
  const known = [socket, below].find((each) => each?.remoteAddress);
  return known ? remoteOf(known) : 'gone';
}
