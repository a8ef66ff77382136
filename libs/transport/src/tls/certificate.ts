import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import {
  type CertificatePool,
  CertificateRejected,
  type Presented,
  presentedBy,
  printable,
  remoteOf,
  verify,
} from '@isthmus/runtime';
import { type Caller, DialError, type NotAuthorised, toldOf } from '@isthmus/tunnel';
import type { ProxyCredential } from '../proxy-authorization.ts';

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

/** The socket below a TLS socket. */
export function belowOf(socket: TLSSocket): Socket | undefined {
  return (socket as unknown as { readonly _parent?: Socket })._parent;
}

/** The certificate that a client of our TLS server showed, with what it sent besides; undefined if it showed none. */
export function shownCertificate(socket: Socket): Presented | undefined {
  return socket instanceof TLSSocket ? presentedBy(socket) : undefined;
}

/** The server name that a client sent (SNI), without a last dot, which some send; undefined if it sent none. */
export function serverNameOf(socket: Socket): string | undefined {
  const { servername } = socket as Partial<TLSSocket>;
  return servername ? servername.replace(/\.$/, '') : undefined;
}

/** The other side of a connection. */
export interface ConnectionPeer {
  readonly socket: Socket;
  /** `host:port`, or `uds`. */
  readonly remote: string;
  /** The subject of its certificate, if it showed one. */
  readonly subject: string | undefined;
  /**
   * Call when a request is refused for what it shows, or because it is malformed. After `TRANSPORT.challenges` of them in a short time the
   * connection accepts no more requests, and ends with the last that it has. Unset over HTTP/1.1, where a connection has one tunnel.
   */
  refused?(why: Error): void;
  /** Ends the connection with its dials and tunnels, as closed by the plane. Tells the other side why where the protocol can. */
  end(reason: Error): void;
}

export function peerOf(socket: Socket, end: ConnectionPeer['end']): ConnectionPeer {
  const subject = socket instanceof TLSSocket ? peerSubject(socket) : undefined;
  return { socket, remote: remoteOf(socket), subject, end };
}

/** Who dials on a connection. */
export interface CallerIdentity {
  readonly tenant: string;
  readonly caller: Omit<Caller, 'via'>;
}

/** Who calls, why it may not dial, or a limit of its tenant that leaves no room for its connection. */
export type Judged = CallerIdentity | NotAuthorised | DialError;

/** Says who a caller is. Called for each dial: one gRPC connection may carry many, and gives the same peer. */
export type IdentifyCaller = (peer: ConnectionPeer) => Judged;

/**
 * Says who a caller is by what it shows in `Proxy-Authorization`. Its connection ends with the credential. Rejects with NotAuthorised, after a
 * delay if the token was wrong, and with DialError for a limit.
 * @param signal aborts when the caller has gone
 */
export type IdentifyByToken = (
  peer: ConnectionPeer,
  shown: ProxyCredential,
  signal: AbortSignal,
) => Promise<CallerIdentity>;

/** Every peer that reaches the port may dial, for this tenant. Its name is the subject of its certificate, or its address. */
export function anyoneOf(tenant: string): IdentifyCaller {
  return ({ subject, remote }) => ({ tenant, caller: { identity: subject ?? remote, remote } });
}

/** The error of a dial by a caller that may not dial. */
export function denied(why: Error): DialError {
  return new DialError('http_request_denied', toldOf(why), { cause: why });
}
