import type { SecureVersion } from 'node:tls';

/**
 * Go's names of the cipher suites that crypto/tls considers secure, and OpenSSL's names for them. The TLS 1.3 suites are accepted
 * without effect: neither Go nor upstream lets one choose among them.
 */
const OPENSSL_NAMES: Readonly<Record<string, string>> = {
  TLS_AES_128_GCM_SHA256: 'TLS_AES_128_GCM_SHA256',
  TLS_AES_256_GCM_SHA384: 'TLS_AES_256_GCM_SHA384',
  TLS_CHACHA20_POLY1305_SHA256: 'TLS_CHACHA20_POLY1305_SHA256',
  TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA: 'ECDHE-ECDSA-AES128-SHA',
  TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA: 'ECDHE-ECDSA-AES256-SHA',
  TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA: 'ECDHE-RSA-AES128-SHA',
  TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA: 'ECDHE-RSA-AES256-SHA',
  TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: 'ECDHE-ECDSA-AES128-GCM-SHA256',
  TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384: 'ECDHE-ECDSA-AES256-GCM-SHA384',
  TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: 'ECDHE-RSA-AES128-GCM-SHA256',
  TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384: 'ECDHE-RSA-AES256-GCM-SHA384',
  TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256: 'ECDHE-RSA-CHACHA20-POLY1305',
  TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256: 'ECDHE-ECDSA-CHACHA20-POLY1305',
};
const ALL_TLS13 = Object.keys(OPENSSL_NAMES).filter((name) => name.startsWith('TLS_') && !name.includes('_WITH_'));

export function isCipherSuite(name: string): boolean {
  return Object.hasOwn(OPENSSL_NAMES, name);
}

export function cipherSuiteNames(): string[] {
  return Object.keys(OPENSSL_NAMES);
}

/** Converts Go's names to the `ciphers` of node:tls. Returns undefined for an empty list, which means the default. */
export function opensslCiphers(names: readonly string[]): string | undefined {
  const chosen = names.flatMap((name) => (name.includes('_WITH_') ? (OPENSSL_NAMES[name] ?? []) : []));
  return chosen.length === 0 ? undefined : [...ALL_TLS13, ...chosen].join(':');
}

const VERSIONS: Readonly<Record<string, SecureVersion>> = {
  VersionTLS10: 'TLSv1',
  VersionTLS11: 'TLSv1.1',
  VersionTLS12: 'TLSv1.2',
  VersionTLS13: 'TLSv1.3',
};

/**
 * Converts Go's name of a TLS version to that of node:tls. An empty name is TLS 1.2, as in upstream. Returns undefined for an unknown
 * name.
 */
export function tlsVersion(name: string): SecureVersion | undefined {
  return name === '' ? 'TLSv1.2' : VERSIONS[name];
}
