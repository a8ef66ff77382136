import { readFileSync } from 'node:fs';
import type { SecureContextOptions, SecureVersion } from 'node:tls';
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

/** Older versions know only CBC, so a program that allows one of them gets the runtime's own list. */
function defaultCiphers(minVersion: SecureVersion): string | undefined {
  return minVersion === 'TLSv1' || minVersion === 'TLSv1.1' ? undefined : CIPHERS;
}

/**
 * Reads the files, and sees to it that verifying the other side's certificates is bounded. Throws the file system's error for a file that
 * cannot be read.
 */
export function secureContextOptions({ minVersion = 'TLSv1.2', ...settings }: TlsSettings): ReadTls {
  boundVerification();
  const { cert, key, ca, ciphers = defaultCiphers(minVersion) } = settings;
  return {
    ...(cert && { cert: readFileSync(cert) }),
    ...(key && { key: readFileSync(key) }),
    ...(ca && { ca: readFileSync(ca) }),
    ...(ciphers && { ciphers }),
    minVersion,
  };
}

/** What was read as one string, to compare. */
export function textOf(read: ReadTls): string {
  return Object.values(read).map(String).join('\0');
}
