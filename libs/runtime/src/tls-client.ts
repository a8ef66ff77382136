import { Agent, type AgentOptions } from 'node:https';
import { isIP } from 'node:net';
import { type ConnectionOptions, connect, createSecureContext, type SecureContext, type TLSSocket } from 'node:tls';
import { withIssuers } from './certificates/issuers.ts';
import { CertificatePool } from './certificates/pool.ts';
import { presentedBy } from './certificates/presented.ts';
import { verify } from './certificates/verify.ts';
import { lookupName } from './resolve.ts';
import { type ReadTls, secureContextOptions, type TlsSettings, textOf } from './tls-files.ts';

/** What a client shows to servers, and whom it trusts. */
export interface ClientTls {
  readonly secureContext: SecureContext;
  readonly roots: CertificatePool;
}

/**
 * Without `ca`, trusts what the machine trusts, which may be nobody.
 * @throws OpenSSL's error if the certificate and key cannot be used, and an Error if there is no authority in `ca`
 */
export function clientTls({ ca, ...own }: ReadTls): ClientTls {
  const roots = ca === undefined ? CertificatePool.system() : CertificatePool.of(ca);
  if (ca !== undefined && roots.all.length === 0)
    throw new Error('there is no certificate (PEM) among the authorities');
  const cert = withIssuers({ cert: own.cert, ca });
  // OpenSSL is told of no authority: the judgement is ours, and it would verify the same signatures.
  return { secureContext: createSecureContext({ ...own, ...(cert && { cert }), ca: [] }), roots };
}

const made = new WeakMap<TlsSettings, { readonly of: string; readonly tls: ClientTls }>();

/**
 * Returns what an outgoing connection needs. It reads the files each time, because certificates are renewed in place, and parses them only
 * when they have changed, because that takes as long as a whole handshake. Throws the file system's error for a file that cannot be read.
 */
export function clientTlsOf(settings: TlsSettings): ClientTls {
  const read = secureContextOptions(settings);
  const of = textOf(read);
  const last = made.get(settings);
  if (last?.of === of) return last.tls;
  const tls = clientTls(read);
  made.set(settings, { of, tls });
  return tls;
}

/**
 * Connects over TLS. Nothing is sent before the server's certificate was judged: if it is refused, the connection ends with an error that
 * says why.
 * @param names of which the certificate must have one: hosts, addresses or a role
 */
export function connectTls(
  options: Omit<ConnectionOptions, 'rejectUnauthorized' | 'checkServerIdentity'>,
  { secureContext, roots }: ClientTls,
  names: readonly string[],
): TLSSocket {
  const socket = connect({ ...options, secureContext, rejectUnauthorized: false });
  // Node sends what was written before, as soon as all listeners have returned.
  socket.prependListener('secureConnect', () => {
    const fault = serverFault(socket, roots, names);
    if (fault !== undefined) socket.destroy(new Error(fault));
  });
  return socket;
}

function serverFault(socket: TLSSocket, roots: CertificatePool, names: readonly string[]): string | undefined {
  let title = '';
  try {
    const presented = presentedBy(socket);
    if (!presented) return 'the server showed no certificate';
    title = ` (${presented.leaf.title})`;
    verify(presented, roots, { use: 'server', names, now: Date.now() });
    return undefined;
  } catch (error) {
    // Whatever it is: a server that could not be judged was not accepted.
    return `the server's certificate${title} is refused: ${(error as Error).message}`;
  }
}

/** Resolves when a connection of `connectTls` stands. Rejects with what ended it before. */
export function secured(socket: TLSSocket): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (act: () => void) => {
      socket.off('secureConnect', done).off('error', reject).off('close', gone);
      act();
    };
    // A server that was refused has destroyed it by now.
    const done = () => socket.destroyed || settle(resolve);
    const gone = () => settle(() => reject(new Error('the connection ended during the TLS handshake')));
    socket.on('secureConnect', done).once('error', reject).on('close', gone);
  });
}

/**
 * Connections for HTTPS whose servers are judged as those of `connectTls`. Sessions are not resumed: a resumed one does not show the
 * certificates again.
 */
export function httpsAgent(tls: ReadTls, names: readonly [string, ...string[]], options: AgentOptions = {}): Agent {
  const trust = clientTls(tls);
  const [name] = names;
  const named = isIP(name) === 0 && { servername: name };
  return Object.assign(new Agent({ ...options, maxCachedSessions: 0 }), {
    createConnection: ({ host, port, ALPNProtocols }: ConnectionOptions) =>
      connectTls({ host, port, lookup: lookupName, ...(ALPNProtocols && { ALPNProtocols }), ...named }, trust, names),
  });
}
