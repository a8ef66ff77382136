import { readFileSync } from 'node:fs';
import {
  createSecureContext,
  type SecureContext,
  type SecureContextOptions,
  type SecureVersion,
  type TLSSocket,
} from 'node:tls';
import { subjectOf } from '@isthmus/tunnel';

/** Certificates as files (PEM), the way every program is given them. */
export interface TlsFiles {
  readonly cert?: string;
  readonly key?: string;
  /** Authorities that the other side's certificate must come from. Unset: the system's, or none asked for. */
  readonly ca?: string;
}

export interface TlsSettings extends TlsFiles {
  readonly minVersion?: SecureVersion;
  /** OpenSSL names, colon-separated. Unset: `CIPHERS`. */
  readonly ciphers?: string;
}

/** What files said, as options of a context. */
export interface ReadTls extends SecureContextOptions {
  readonly cert?: Buffer;
  readonly key?: Buffer;
  readonly ca?: Buffer;
}

/**
 * What is offered and accepted where nobody names suites: those of TLS 1.3, and of TLS 1.2 those with forward secrecy and
 * authenticated encryption (RFC 9325 section 4.2). Node's own list also has CBC with SHA-1, and RSA key exchange.
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

/** Older versions know CBC alone: who asks for one by name gets the runtime's own list. */
function defaultCiphers(minVersion: SecureVersion): string | undefined {
  return minVersion === 'TLSv1' || minVersion === 'TLSv1.1' ? undefined : CIPHERS;
}

/** Reads the files once. @throws the file system's error for a file that cannot be read. */
export function secureContextOptions({ minVersion = 'TLSv1.2', ...settings }: TlsSettings): ReadTls {
  const { cert, key, ca, ciphers = defaultCiphers(minVersion) } = settings;
  return {
    ...(cert && { cert: readFileSync(cert) }),
    ...(key && { key: readFileSync(key) }),
    ...(ca && { ca: readFileSync(ca) }),
    ...(ciphers && { ciphers }),
    minVersion,
  };
}

const contexts = new WeakMap<TlsSettings, { readonly made: string; readonly context: SecureContext }>();

/**
 * The context of a connection that goes out. The files are read each time, since certificates are renewed in place; what
 * they say is parsed anew only when it has changed: that takes as long as a whole handshake.
 * @throws the file system's error for a file that cannot be read, OpenSSL's for one that holds no such thing
 */
export function secureContext(settings: TlsSettings): SecureContext {
  const options = secureContextOptions(settings);
  const made = textOf(options);
  const last = contexts.get(settings);
  if (last?.made === made) return last.context;
  const context = createSecureContext(options);
  contexts.set(settings, { made, context });
  return context;
}

/** What was read, to be compared. */
export function textOf(read: ReadTls): string {
  return Object.values(read).map(String).join('\0');
}

/**
 * The name in a peer's certificate as one line, or undefined when it showed none. (`getPeerCertificate` makes an object of all
 * that stands in the certificate, and hashes it three times: a twentieth of a handshake.)
 */
export function peerSubject(socket: TLSSocket): string | undefined {
  const certificate = socket.getPeerX509Certificate();
  return certificate && subjectOf(certificate);
}
