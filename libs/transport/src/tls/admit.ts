import type { Socket } from 'node:net';
import { type Server, TLSSocket } from 'node:tls';
import {
  boundKeyUpdates,
  boundMet,
  bytesFrom,
  type CertificatePool,
  CertificateRejected,
  guarding,
  type Presented,
  passHeader,
  presentedBy,
  printable,
  remoteOf,
  verify,
} from '@isthmus/runtime';
import { Distrusted } from '@isthmus/tunnel';
import {
  type Config,
  Connection,
  DEFAULT_FRAME,
  type Field,
  greeting,
  hpackEncode,
  StatusError,
  statusFields,
  WIRE,
} from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { endsSoon, lastAnswer, percentEncoded } from '../http1.ts';

/** TLS alerts about certificates and versions (RFC 8446 section 6.2), and what their sender means. */
const ALERTS: readonly (readonly [code: number, name: string, means: string])[] = [
  [40, 'handshake_failure', 'it has no version, cipher suite or certificate in common with this side'],
  [42, 'bad_certificate', 'it does not accept the certificate that it was shown'],
  [
    43,
    'unsupported_certificate',
    'the certificate that it was shown is not for this purpose, or not of its authorities',
  ],
  [44, 'certificate_revoked', 'the certificate that it was shown is revoked'],
  [45, 'certificate_expired', 'the certificate that it was shown has expired, or is not valid yet'],
  [46, 'certificate_unknown', 'it does not accept the certificate that it was shown'],
  [48, 'unknown_ca', 'it does not trust the authority of the certificate that it was shown'],
  [49, 'access_denied', 'it does not let this certificate in'],
  [70, 'protocol_version', 'it wants another version of TLS'],
  [116, 'certificate_required', 'it asks for a certificate, and was shown none'],
  [120, 'no_application_protocol', 'it speaks none of the protocols that this side offers: is it the right port?'],
];

/** Returns the other side's TLS alert in words, or undefined if the error is none. OpenSSL gives its number, rustls its name. */
function alertIn({ message }: Error): string | undefined {
  const number = Number(/alert number (\d+)/.exec(message)?.[1]);
  const word = /received fatal alert: (\w+)/.exec(message)?.[1]?.toLowerCase();
  // Go's words, which arrive through a gRPC library: `remote error: tls: bad certificate`.
  const spoken = /remote error: tls: ([\w ]+)/.exec(message)?.[1]?.replaceAll(' ', '');
  const found = ALERTS.find(([code, name]) => code === number || [word, spoken].includes(name.replaceAll('_', '')));
  return found && `the other side ended the TLS handshake (alert ${found[1]}): ${found[2]}`;
}

/** Returns the error of a failed handshake without OpenSSL's numbers and source files, also if a gRPC library quotes it. */
export function handshakeFailure(error: Error): Error {
  const alert = alertIn(error);
  if (alert !== undefined) return new Error(alert, { cause: error });
  const why = boundMet(error) ?? /:SSL routines:[^:]*:([^:]+)/.exec(error.message)?.[1];
  return why === undefined ? error : new Error(`the TLS handshake failed: ${why}`, { cause: error });
}

/**
 * For a server. A peer that does not trust the server's certificate sends an alert, or just closes.
 * @param begun whether the peer had sent anything: before that, it has not seen the certificate
 * @returns undefined if it closed before, or reset its connection: that is how load balancers look whether the port is open. A reset also
 * hides that their handshake was complete
 */
export function handshakeError(error: Error, begun: boolean): Error | undefined {
  const told = handshakeFailure(error);
  const { code, syscall } = error as NodeJS.ErrnoException;
  const silent = code === 'ECONNRESET';
  if (silent && (!begun || syscall === 'read')) return undefined;
  if (!silent && !/\b(unknown_ca|bad_certificate|unsupported_certificate|certificate_unknown)\b/.test(told.message))
    return told;
  const what = silent ? 'the peer went away during the TLS handshake' : told.message;
  return new Distrusted(`${what}: does it trust the authority of this certificate?`, { cause: error });
}

/** The field of an answer that says why, percent-encoded. */
export const WHY_FIELD = 'isthmus-error';

/**
 * Tells a peer why its certificate is refused, in the protocol that it chose by ALPN, and ends the connection. Neither Node's OpenSSL
 * nor Deno lets a server send the TLS alert, because the certificate is verified after the handshake. Of what the peer sends, only the
 * head of its first request is read.
 * @param wanted called once if the peer asks for something, or stays: a load balancer's health check closes after its handshake
 */
function turnAway(socket: TLSSocket, why: string, wanted: () => void): void {
  let told = false;
  const tell = () => {
    if (!told) wanted();
    told = true;
  };
  if (socket.alpnProtocol === 'h2') answerFirstStream(socket, why, tell);
  else answerSoon(socket, why, tell);
}

function refusal(why: string): string {
  const body = `${why}\n`;
  const fields: Field[] = [
    ['content-type', 'text/plain; charset=utf-8'],
    ['content-length', String(Buffer.byteLength(body))],
    [WHY_FIELD, percentEncoded(why)],
  ];
  return lastAnswer(403, fields, undefined, body);
}

/** Answers a request, or a peer that waits to be told. Deno reads nothing more of a connection that it has ended: so not at once. */
function answerSoon(socket: TLSSocket, why: string, wanted: () => void): void {
  endsSoon(socket, wanted);
  socket.once('data', wanted);
  const answer = () => {
    clearTimeout(timer);
    socket.off('data', answer).resume().end(refusal(why));
  };
  const timer = setTimeout(answer, TRANSPORT.refusedPeerAsksMs).unref();
  socket.once('close', () => clearTimeout(timer));
  socket.on('data', answer);
}

/** Nothing more may wait for such a peer than the answer. */
const REFUSING: Config = {
  ...WIRE,
  frameBytes: DEFAULT_FRAME,
  streams: 1,
  backlogBytes: TRANSPORT.grpcWaitingBacklogBytes,
};

/** Answers both gRPC clients, in the status, and the other end of a link. */
function answerFirstStream(socket: TLSSocket, why: string, wanted: () => void): void {
  endsSoon(socket, wanted);
  const head = hpackEncode([
    [':status', '200'],
    ['content-type', 'application/grpc'],
    ...statusFields(new StatusError('PermissionDenied', why)),
    [WHY_FIELD, percentEncoded(why)],
  ]);
  const connection = new Connection(socket, {
    ...{ role: 'server', config: REFUSING, greeting: greeting('server', REFUSING), latePongs: false },
    rules: { abandonsRequests: true },
    defer: process.nextTick,
    lost: (reason) => reason,
    opened(stream) {
      wanted();
      stream.answer(head, true);
      connection.close();
    },
    fault: () => socket.destroy(),
  });
  connection.start();
}

/** What OpenSSL says of a plain-text request, such as the CONNECT of a tool whose proxy's address begins with http://. */
const PLAIN_HTTP = /:(http request|https proxy request)/;

const PLAIN_WHY = 'this port speaks TLS: use https:// in the proxy address, and make a new token if one was sent';
const PLAIN_ANSWER = lastAnswer(400, [['content-type', 'text/plain']], `Bad Request: ${PLAIN_WHY}`, `${PLAIN_WHY}\n`);

/** Answers below TLS, whose socket is about to be destroyed with this one. One small write goes out at once. */
function answerPlain(below: Socket): void {
  below.write(PLAIN_ANSWER);
}

/** Gets the connections of a TLS server. */
export interface ConnectionHandlers {
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
  { accept, refused, fault, role }: ConnectionHandlers,
): void {
  // A socket remembers its remote address once it was read. After it has closed, it can no longer find out.
  server.prependListener('connection', (socket: Socket) => void socket.remoteAddress);
  const countKeyUpdates = boundKeyUpdates(server);
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
    if (below && PLAIN_HTTP.test(error.message)) answerPlain(below);
    // Node leaves a handshake that took too long open.
    socket.destroy();
  };
  server.on('secureConnection', (socket) => {
    dropHandshakeTimer(socket);
    countKeyUpdates(socket, belowOf(socket), () => {
      refused(remoteOf(socket), new Error('it changes its keys too often (KeyUpdate)'));
      socket.destroy();
    });
    guarded(socket, () => decide(socket));
  });
  server.on('tlsClientError', (error, socket) => guarded(socket, () => fail(error, socket)));
}

/**
 * Node stops the timer of a handshake that is over, but keeps it, and refreshes it with each read and write: a link's socket takes nine calls a dial
 * for it. The property is Node's own. A socket without a timer has null there.
 */
function dropHandshakeTimer(socket: TLSSocket): void {
  const own = socket as unknown as Record<symbol, unknown>;
  for (const key of Object.getOwnPropertySymbols(socket))
    if (key.description === 'timeout' && socket.timeout === 0) own[key] = null;
}

/** A TLS socket that failed has lost its handle, and its address with it. The socket below it has not. */
function cameFrom(socket: TLSSocket, below: Socket | undefined): string {
  const known = [socket, below].find((each) => each?.remoteAddress);
  return known ? remoteOf(known) : 'gone';
}

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
