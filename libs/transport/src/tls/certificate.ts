import type { TLSSocket } from 'node:tls';
import { type CertificatePool, CertificateRejected, presentedBy, verify } from '@isthmus/runtime';
import { printable } from '@isthmus/tunnel';

/**
 * Returns why what a client showed is not accepted, or undefined if it is: a certificate for clients that a trusted authority issued.
 * @param roots the trusted authorities. Undefined: somebody else verifies it, if there is one, and it must only be readable
 * @param role a name that it must have (subjectAltName, DNS)
 */
export function faultOfClient(
  socket: TLSSocket,
  roots: CertificatePool | undefined,
  role: string | undefined,
): string | undefined {
  let of = '';
  try {
    const presented = presentedBy(socket);
    if (!roots) return undefined;
    if (!presented) return 'this port requires a client certificate, and the peer sent none';
    of = ` of ${presented.leaf.title}`;
    verify(presented, roots, { use: 'client', names: role === undefined ? undefined : [role], now: Date.now() });
    return undefined;
  } catch (error) {
    if (!(error instanceof CertificateRejected)) throw error;
    return `the client certificate${of} is refused: ${printable(error.message)}`;
  }
}

/** Returns the subject of a peer's certificate as one line, or undefined if the peer showed none, or one that names nobody. */
export function peerSubject(socket: TLSSocket): string | undefined {
  const name = presentedBy(socket)?.leaf.name;
  return name && printable(name);
}
