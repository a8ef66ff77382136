import type { Socket } from 'node:net';
import type { Server, TLSSocket } from 'node:tls';
import { bytesFrom, type CertificatePool, guarding, passHeader, remoteOf } from '@isthmus/runtime';
import { belowOf } from '../tls/below.ts';
import { faultOfClient } from '../tls/certificate.ts';
import { handshakeError } from '../tls/handshake.ts';
import { turnAway } from './turn-away.ts';

/** Gets the connections of a TLS server. */
export interface Doors {
  /** Called with a connection after its handshake, if its certificate is valid where one is required. */
  readonly accept: (socket: TLSSocket) => void;
  /**
   * Called for every other connection, except for those that ask for nothing: load balancers' health checks connect, perhaps shake hands,
   * and close or reset.
   * @param remote `address:port`
   */
  readonly refused: (remote: string, error: Error) => void;
  /** Called with an error that nothing else would catch. It ends the connection, not the process. */
  readonly fault: (remote: string, error: Error) => void;
  /** A name that each certificate must have (subjectAltName, DNS). */
  readonly role?: string | undefined;
}

/**
 * Decides which connections a TLS server accepts. If it requires certificates, it verifies them itself after the handshake: the runtime
 * would end the connection without telling either side why, and would have lost what it knew of the peer.
 * @param roots the authorities that must have issued a certificate, as they are now. Undefined: none is required
 */
export function admit(
  server: Server,
  roots: (() => CertificatePool) | undefined,
  { accept, refused, fault, role }: Doors,
): void {
  // A socket remembers its remote address once it was read. After it has closed, it can no longer find out.
  server.prependListener('connection', (socket: Socket) => void socket.remoteAddress);
  const guarded = (socket: TLSSocket, act: () => void) => {
    const failed = (error: Error) => {
      const remote = cameFrom(socket, belowOf(socket));
      socket.destroy();
      fault(remote, error);
    };
    const below = belowOf(socket);
    if (below) passHeader(below, socket);
    guarding(failed)(act)();
  };
  const decide = (socket: TLSSocket) => {
    // Also where others judge it: OpenSSL leaves the error of a forged signature behind, and the connection's next read would fail with it.
    // Reading the certificate clears that, so that the peer gets an answer and the refusal is recorded.
    const why = faultOfClient(socket, roots?.(), role);
    if (why === undefined) return accept(socket);
    const shown = socket.getPeerX509Certificate() !== undefined;
    const remote = remoteOf(socket);
    const tell = () => refused(remote, new Error(why));
    if (shown) tell();
    turnAway(socket, why, shown ? () => {} : tell);
  };
  const fail = (error: Error, socket: TLSSocket) => {
    const below = belowOf(socket);
    const reason = handshakeError(error, !below || bytesFrom(below) > 0);
    if (reason) refused(cameFrom(socket, below), reason);
    // Node leaves a handshake that took too long open.
    socket.destroy();
  };
  server.on('secureConnection', (socket) => guarded(socket, () => decide(socket)));
  server.on('tlsClientError', (error, socket) => guarded(socket, () => fail(error, socket)));
}

/** A TLS socket that failed has lost its handle, and its address with it. The socket below it has not. */
function cameFrom(socket: TLSSocket, below: Socket | undefined): string {
  const known = [socket, below].find((each) => each?.remoteAddress);
  return known ? remoteOf(known) : 'gone';
}
