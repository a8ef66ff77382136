import { Agent, type AgentOptions } from 'node:https';
import { isIP } from 'node:net';
import {
  type ConnectionOptions,
  connect,
  createSecureContext,
  type SecureContext,
  type SecureContextOptions,
  type SecureVersion,
  type TLSSocket,
} from 'node:tls';
import type { Certificate } from './certificates/certificate.ts';
import { isKeyOf } from './certificates/keys.ts';
import { pemText } from './certificates/pem.ts';
import { CertificatePool, ownChain, withIssuers } from './certificates/pool.ts';
import { presentedBy, verify } from './certificates/verify.ts';
import { RUNTIME } from './defaults.ts';
import { readNamedFile } from './files.ts';
import { lookupName } from './resolve.ts';
import { boundVerification } from './verification-bound.ts';

/** Paths of PEM files. An empty path counts as unset. */
export interface TlsFiles {
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
  /** Authorities that must have issued the other side's certificate. Unset: a client trusts the system's, a server asks for no certificate. */
  readonly ca?: string | undefined;
}

export interface TlsSettings extends TlsFiles {
  readonly minVersion?: SecureVersion;
  /** OpenSSL names, colon-separated. Unset: `CIPHERS`. */
  readonly ciphers?: string;
}

/** The files' content, as options of a context. */
export interface ReadTls extends SecureContextOptions {
  readonly cert?: Buffer | string | undefined;
  readonly key?: Buffer | string | undefined;
  readonly ca?: Buffer | string | undefined;
}

/**
 * The default cipher suites: those of TLS 1.3, and those of TLS 1.2 with forward secrecy and authenticated encryption (RFC 9325
 * section 4.2). Node's own list also has CBC with SHA-1, and RSA key exchange.
 */
const CIPHERS = [
  'TLS_AES_128_GCM_SHA256',
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-RSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305',
  'ECDHE-RSA-CHACHA20-POLY1305',
].join(':');

/**
 * Reads the files, and sees to it that verifying the other side's certificates is bounded. Throws the file system's error for a file that
 * cannot be read.
 */
export function secureContextOptions({ minVersion = 'TLSv1.2', ...settings }: TlsSettings): ReadTls {
  boundVerification();
  // Older versions know only CBC, so a program that allows one of them gets the runtime's own list.
  const isOld = minVersion === 'TLSv1' || minVersion === 'TLSv1.1';
  const { cert, key, ca, ciphers = isOld ? undefined : CIPHERS } = settings;
  return {
    ...(cert && { cert: pemText(readNamedFile(cert)) }),
    ...(key && { key: pemText(readNamedFile(key)) }),
    ...(ca && { ca: pemText(readNamedFile(ca)) }),
    ...(ciphers && { ciphers }),
    minVersion,
  };
}

/** Reads the files, and checks them. @throws Error that names the one that cannot be used */
export function checkedTls(settings: TlsSettings): ReadTls {
  const read = secureContextOptions(settings);
  checkedFiles(read, settings);
  return read;
}

/** What was read as one string, to compare. */
function textOf(read: ReadTls): string {
  return Object.values(read).map(String).join('\0');
}

/** What a client shows to servers, and whom it trusts. */
export interface ClientTls {
  readonly secureContext: SecureContext;
  readonly roots: CertificatePool;
}

/**
 * Without `ca`, trusts what the machine trusts, which may be nobody.
 * @throws Error that says what cannot be used of the certificate, its key and the authorities
 */
export function clientTls({ ca, ...own }: ReadTls): ClientTls {
  const roots = ca === undefined ? CertificatePool.system() : CertificatePool.authorities(ca);
  const cert = withIssuers({ cert: own.cert, ca });
  // OpenSSL is told of no authority: the judgement is ours, and it would verify the same signatures.
  const shown = { ...(cert && { cert }), ...(own.key && { key: pemText(own.key) }) };
  return { secureContext: createSecureContext({ ...own, ...shown, ca: [] }), roots };
}

const made = new WeakMap<TlsSettings, { readonly of: string; readonly tls: ClientTls }>();

/**
 * Returns what an outgoing connection needs. It reads the files each time, because certificates are renewed in place, and parses them only
 * when they have changed, because that takes as long as a whole handshake. While they cannot be used, the last usable content stays in force,
 * and `TlsRenewal` says why.
 * @throws Error if they never could be used with these settings
 */
export function clientTlsOf(settings: TlsSettings): ClientTls {
  const last = made.get(settings);
  try {
    const read = secureContextOptions(settings);
    const of = textOf(read);
    if (last?.of === of) return last.tls;
    checkedFiles(read, settings);
    const tls = clientTls(read);
    made.set(settings, { of, tls });
    return tls;
  } catch (error) {
    if (last) return last.tls;
    throw error;
  }
}

/**
 * The server name (SNI) for a host: an address has none, and a name's last dot is not part of it (RFC 6066 section 3). Go's servers refuse one
 * with a dot.
 */
export function sniOf(host: string): { readonly servername?: string } {
  return host === '' || isIP(host) !== 0 ? {} : { servername: host.replace(/(?<!\.)\.+$/, '') };
}

/**
 * Connects over TLS. The `servername` may be any host: see `sniOf`. Nothing is sent before the server's certificate was judged: if it is refused, the connection ends with an error that
 * says why.
 * @param names of which the certificate must have one: hosts, addresses or a role
 */
export function connectTls(
  options: Omit<ConnectionOptions, 'rejectUnauthorized' | 'checkServerIdentity'>,
  { secureContext, roots }: ClientTls,
  names: readonly string[],
): TLSSocket {
  const { servername = '', ...others } = options;
  const socket = connect({ ...others, ...sniOf(servername), secureContext, rejectUnauthorized: false });
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
  return Object.assign(new Agent({ ...options, maxCachedSessions: 0 }), {
    createConnection: ({ host, port, ALPNProtocols }: ConnectionOptions) =>
      connectTls(
        { host, port, lookup: lookupName, servername: name, ...(ALPNProtocols && { ALPNProtocols }) },
        trust,
        names,
      ),
  });
}

interface TlsRenewalOptions {
  readonly files: TlsSettings;
  /** Called with each new content of the files that can be used. */
  readonly use: (read: ReadTls) => void;
  /** Called with each certificate that comes into force, the first too. */
  readonly inForce: (leaf: Certificate) => void;
  /** Called when the files cannot be used, or not as a whole, once for each different message in a row; with undefined once they can. */
  readonly fault: (error: Error | undefined) => void;
}

/** Watches the files of one certificate. While they cannot be used, the last usable content stays in force. */
export class TlsRenewal {
  readonly #options: TlsRenewalOptions;
  #inForce = '';
  /** What is not used of the files in force. */
  #skipped = '';
  #reported = '';
  #timer: NodeJS.Timeout | undefined;

  constructor(options: TlsRenewalOptions) {
    this.#options = options;
  }

  /** Reads the files for the first time. Throws if they cannot be used. */
  begin(): ReadTls {
    // If this throws, the next look takes the files again, even if they have not changed.
    this.#inForce = '';
    const read = secureContextOptions(this.#options.files);
    this.#accept(read, () => {});
    return read;
  }

  watch(): void {
    this.#timer ??= setInterval(() => this.look(), RUNTIME.certificateLookMs).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  look(): void {
    try {
      const read = secureContextOptions(this.#options.files);
      if (textOf(read) !== this.#inForce) this.#accept(read, this.#options.use);
      this.#tell(this.#skipped);
    } catch (error) {
      this.#tell((error as Error).message);
    }
  }

  #accept(read: ReadTls, use: (read: ReadTls) => void): void {
    const { files, inForce } = this.#options;
    const leaf = checkedFiles(read, files);
    use(read);
    this.#inForce = textOf(read);
    this.#skipped = skippedIn(files.ca ?? '', read.ca ? CertificatePool.of(read.ca) : undefined);
    if (leaf) inForce(leaf);
    this.#tell(this.#skipped);
  }

  #tell(fault: string): void {
    if (fault === this.#reported) return;
    this.#reported = fault;
    this.#options.fault(fault === '' ? undefined : new Error(fault));
  }
}

/** What is not used of a bundle, for people; empty if all is. */
export function skippedIn(path: string, bundle: Pick<CertificatePool, 'skipped'> | undefined): string {
  return (bundle?.skipped ?? []).map((each) => `${path}: ${each}: the others are used, this one is not`).join('; ');
}

/** A certificate, a key or a bundle of authorities that cannot be used. */
export class UnusablePem extends Error {
  readonly of: 'cert' | 'key' | 'ca';

  constructor(of: UnusablePem['of'], message: string, cause?: unknown) {
    super(message, { cause });
    this.of = of;
  }
}

/**
 * Checks what a program shows, and whom it trusts, as far as there is any (PEM). Node accepts a bundle without authorities, such as one that is
 * being written, and then every client is refused.
 * @returns the certificate
 * @throws UnusablePem
 */
export function checkedPem({ cert, key = '', ca }: ReadTls): Certificate | undefined {
  if (ca !== undefined) blaming('ca', () => CertificatePool.authorities(ca));
  if (cert === undefined) return undefined;
  const chain = blaming('cert', () => ownChain(cert));
  const [leaf] = chain.all as [Certificate];
  if (!blaming('key', () => isKeyOf(key, leaf))) throw new UnusablePem('key', 'the key does not match the certificate');
  try {
    createSecureContext({ cert: chain.pem, key: pemText(key) });
  } catch (error) {
    // It begins with numbers that nobody looks up.
    const why = (error as Error).message.replace(/^error:[0-9A-F]+:[^:]*::?/, '');
    throw new UnusablePem('cert', `OpenSSL does not take it: ${why}`, error);
  }
  return leaf;
}

function blaming<T>(of: UnusablePem['of'], read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new UnusablePem(of, (error as Error).message, error);
  }
}

/** The same of what was read of files, whose names the error has. */
function checkedFiles(read: ReadTls, files: TlsFiles): Certificate | undefined {
  try {
    return checkedPem(read);
  } catch (error) {
    if (!(error instanceof UnusablePem)) throw error;
    throw new Error(`${files[error.of]}: ${error.message}`, { cause: error });
  }
}
