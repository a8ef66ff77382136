import { constants } from 'node:crypto';
import {
  type ConnectionOptions,
  createSecureContext,
  createServer,
  type SecureContext,
  type Server,
  type TLSSocket,
  type TlsOptions,
} from 'node:tls';
import {
  CertificatePool,
  type ClientTls,
  type ConnectLimits,
  clientTlsOf,
  connectTls,
  connectTo,
  ownChain,
  pemText,
  type ReadTls,
  secureContextOptions,
  secured,
  TlsRenewal,
  type TlsSettings,
  unlessGivenUp,
  withIssuers,
} from '@isthmus/runtime';
import type { CertificatePlace, Destination, PlaneEvents } from '@isthmus/tunnel';
import { admit, type ConnectionHandlers, handshakeFailure } from './admit.ts';

/**
 * Nobody resumes: API servers and Go agents have no cache for it, and our agents may come with a new certificate. A ticket would hold
 * the peer's certificate, and OpenSSL makes and reads back two for each connection: a third of a handshake. (With TLS 1.3 it sends two
 * all the same, but empty ones, unless `boundVerification` could tell it to send none.)
 */
const NO_TICKETS = constants.SSL_OP_NO_TICKET;

/**
 * Another handshake on a connection of TLS 1.2 costs as much as the first. Node lets a client have any number: after three it emits an error, and
 * goes on. Go's servers know none.
 */
const ONE_HANDSHAKE = constants.SSL_OP_NO_RENEGOTIATION;

/**
 * Ours first: our agents offer both, a Go agent only h2, an API server nothing. Of callers that offer both, Go's net/http sends HTTP/1.1 to a
 * proxy whatever was chosen, and Node 26's fetch connects anew without end if it is h2. gRPC's clients offer h2 alone. Not an
 * ALPNCallback: for that, Node makes a string of each name that a peer offers, six times the cost of its handshake for 64 KiB of them.
 */
const PROTOCOLS = ['http/1.1', 'h2'];

/** Options of a TLS server besides those of its runtime. */
interface TlsServerOptions extends TlsOptions {
  /** Chooses what a peer is shown by the server name that it sends (SNI). Undefined: the files' certificate. */
  readonly chooseTls?: ChooseTls | undefined;
  /**
   * Asks for a client certificate, and lets in peers without one. A certificate that is shown proves only that its key is there: what takes
   * the connection verifies who issued it, see `shownCertificate`. No authority is named to peers. A thousand tenants' names would be
   * 50 KB of each handshake, and above 64 KB every handshake fails.
   */
  readonly asksOnly?: boolean | undefined;
}

/** What it throws ends the handshake, and is reported as the reason. */
export type ChooseTls = (serverName: string) => SecureContext | undefined;

/** A certificate with its key that a server may show, see `ChooseTls`. PEM. @throws OpenSSL's error if it cannot be used */
export function tlsChoice(
  { cert, key }: { readonly cert: string; readonly key: string },
  policy: Pick<TlsSettings, 'ciphers' | 'minVersion'>,
): SecureContext {
  const own = { cert: ownChain(cert).pem, key: pemText(key) };
  return createSecureContext({ ...secureContextOptions(policy), ...own, secureOptions: NO_TICKETS | ONE_HANDSHAKE });
}

/** A certificate that comes and goes, which a server shows instead of its files'. */
export interface OtherCertificate {
  /** As it is in force, PEM. Undefined while there is none. */
  readonly current: () => { readonly cert: string; readonly key: string } | undefined;
  /** Calls the listener after each change. Returns a function that stops this. */
  readonly changed: (listener: () => void) => () => void;
}

interface CertificateOptions {
  /** Where it is shown. */
  readonly where: CertificatePlace;
  readonly files: TlsSettings;
  /** While there is one, the files are only the rules for its connections. Whose it is reports what becomes of it. */
  readonly instead?: OtherCertificate | undefined;
  /** Gets `certificate` for each new certificate in force, and `certificate:failure` for files that cannot be used, and once they can. */
  readonly events: PlaneEvents;
}

/**
 * A TLS server that follows its files: new connections get what they contain now. While the files cannot be used, such as one of two
 * that are being renewed, the last usable content stays in force. With authorities among the files, it asks for a client certificate.
 * Throws the file system's error for a file that cannot be read, and OpenSSL's for one that holds nothing usable.
 */
export function tlsServer(
  certificate: CertificateOptions,
  { chooseTls, asksOnly = false, ...options }: TlsServerOptions,
  handlers: Omit<ConnectionHandlers, 'fault'>,
): Server {
  const { where, events, files, instead } = certificate;
  const verifies = !asksOnly && Boolean(files.ca);
  let roots = new CertificatePool([]);
  let other = instead?.current();
  let last: ReadTls = {};
  const shown = (read: ReadTls) => {
    const { ca, ...own } = { ...read, ...other };
    if (verifies && ca) roots = CertificatePool.of(ca);
    last = read;
    // OpenSSL names them to peers.
    return {
      ...options,
      ...own,
      ...(verifies && { ca: roots.pem }),
      cert: withIssuers({ cert: own.cert, ca }),
      ...(own.key && { key: pemText(own.key) }),
      secureOptions: NO_TICKETS | ONE_HANDSHAKE,
    };
  };
  const use = (read: ReadTls) => server.setSecureContext(shown(read));
  const failed = (error: Error) => void events.emit('refused', where, '', error);
  // Where another certificate is shown, nothing is read of the files' own.
  const fault = (error: Error | undefined) => void (error && failed(error));
  const renewal = instead ? new TlsRenewal({ files, use, inForce() {}, fault }) : renewalOf(certificate, use);
  const begin = () => (other ? secureContextOptions({ ...files, cert: '', key: '' }) : renewal.begin());
  const look = () => {
    const now = instead?.current();
    if (now?.cert === other?.cert && now?.key === other?.key) return;
    other = now;
    try {
      use(now ? last : begin());
    } catch (error) {
      // The last one stays in force.
      failed(error as Error);
    }
    follow();
  };
  const follow = () => (other ? renewal.stop() : renewal.watch());
  let unwatch: (() => void) | undefined;
  const server = createServer({
    ALPNProtocols: PROTOCOLS,
    ...shown(begin()),
    ...(chooseTls && { SNICallback: sniCallback(chooseTls) }),
    requestCert: verifies || asksOnly,
    rejectUnauthorized: false,
  });
  admit(server, verifies ? () => roots : undefined, {
    ...handlers,
    fault: (remote, error) => events.emit('fault', where, remote, error),
  });
  // It may listen again after it was closed.
  server.on('listening', () => {
    follow();
    unwatch ??= instead?.changed(look);
    look();
  });
  server.on('close', () => {
    renewal.stop();
    unwatch?.();
    unwatch = undefined;
  });
  return server;
}

function sniCallback(chooseTls: ChooseTls): NonNullable<TlsOptions['SNICallback']> {
  return (serverName, answer) => {
    try {
      answer(null, chooseTls(serverName.replace(/\.$/, '')));
    } catch (error) {
      answer(error as Error);
    }
  };
}

/**
 * Reports the certificate that this process shows to servers. `clientTlsOf` reads its files for each connection anyway, but a
 * connection may last for months. Without a certificate it watches the authorities, and without both it does nothing. Returns a function that stops it.
 */
export function watchCertificate(certificate: CertificateOptions): () => void {
  if (!certificate.files.cert && !certificate.files.ca) return () => {};
  const renewal = renewalOf(certificate, () => {});
  renewal.look();
  renewal.watch();
  return () => renewal.stop();
}

function renewalOf({ where, files, events }: CertificateOptions, use: (read: ReadTls) => void): TlsRenewal {
  const named = [files.cert, files.key, files.ca].filter(Boolean).join(' ');
  return new TlsRenewal({
    files,
    use,
    inForce(leaf) {
      events.emit('certificate', where, leaf.validTo, { name: leaf.title, validFrom: leaf.validFrom });
    },
    fault: (error) => events.emit('certificate:failure', where, named, error),
  });
}

/**
 * Connects, and verifies that the server's certificate is valid for a server and has one of these names: hosts, addresses or a role.
 * @returns the socket, and what resolves when the server has proven its identity. It rejects if the server cannot, with its certificate and
 * what is wrong with it, after destroying the socket
 */
export function secureConnect(options: ConnectionOptions, tls: ClientTls, names: readonly string[]) {
  const socket = connectTls(options, tls, names);
  const done = secured(socket).catch((error: Error) => {
    throw handshakeFailure(error);
  });
  return { socket, done };
}

interface SecurelyOptions extends ConnectLimits, Pick<ConnectionOptions, 'servername' | 'ALPNProtocols'> {
  readonly tls: TlsSettings;
  /** The server's certificate must have one of them. */
  readonly names: readonly string[];
  /** Makes the connection below. */
  readonly connect?: typeof connectTo;
}

/** As `secureConnect`, by files and within a time. The socket ignores errors from then on. */
export async function connectSecurely(
  to: Destination,
  { tls, names, timeout, signal, connect = connectTo, servername = to.host, ALPNProtocols }: SecurelyOptions,
): Promise<TLSSocket> {
  // First: it may throw, while files are replaced, and would leave a socket behind.
  const trust = clientTlsOf(tls);
  const end = performance.now() + timeout;
  const below = await connect(to, { timeout, signal });
  const { socket, done } = secureConnect({ socket: below, servername, ALPNProtocols }, trust, names);
  const late = `no TLS handshake within ${timeout / 1000} s`;
  await unlessGivenUp(socket, () => done, { timeout: end - performance.now(), late, signal });
  return socket.on('error', () => {});
}
