import { readFileSync } from 'node:fs';
import {
  createSecureContext,
  type SecureContext,
  type SecureContextOptions,
  type SecureVersion,
  type TLSSocket,
} from 'node:tls';

/** Certificates as files (PEM), the way every program is given them. */
export interface TlsFiles {
  readonly cert?: string;
  readonly key?: string;
  /** Authorities that the other side's certificate must come from. Unset: the system's, or none asked for. */
  readonly ca?: string;
}

export interface TlsSettings extends TlsFiles {
  readonly minVersion?: SecureVersion;
  /** OpenSSL names, colon-separated. */
  readonly ciphers?: string;
}

/** What files said, as options of a context. */
export interface ReadTls extends SecureContextOptions {
  readonly cert?: Buffer;
  readonly key?: Buffer;
  readonly ca?: Buffer;
}

/** Reads the files once. @throws the file system's error for a file that cannot be read. */
export function secureContextOptions({ cert, key, ca, minVersion, ciphers }: TlsSettings): ReadTls {
  return {
    ...(cert && { cert: readFileSync(cert) }),
    ...(key && { key: readFileSync(key) }),
    ...(ca && { ca: readFileSync(ca) }),
    ...(ciphers && { ciphers }),
    minVersion: minVersion ?? 'TLSv1.2',
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
 * The subject of a peer's certificate as one line, or undefined when it showed none. (`getPeerCertificate` makes an object of all
 * that stands in the certificate, and hashes it three times: a twentieth of a handshake.)
 */
export function peerSubject(socket: TLSSocket): string | undefined {
  return socket.getPeerX509Certificate()?.subject?.split('\n').map(escaped).join(',') || undefined;
}

/** Node escapes as RFC 4514, 2.4 has it, Deno nothing: a comma within a field must not look like its end. What is escaped stays so. */
function escaped(field: string): string {
  return field.replaceAll(/\\(?:[ "#+,;<=>\\]|[0-9A-F]{2})|[\\,]/g, (found) =>
    found.length > 1 ? found : `\\${found}`,
  );
}
