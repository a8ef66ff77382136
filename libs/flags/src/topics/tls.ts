import type { SecureVersion } from 'node:tls';
import { checkTlsFiles, checkTogether, faultOfSocketPath, sharedAuthority } from '../files.ts';
import { FlagError, ownTopic, string, strings, topic, type Values } from '../flag.ts';
import { nearest } from '../parse.ts';

export const tlsPolicy = topic('TLS: all listeners', {
  'cipher-suites': strings(
    [],
    "Cipher suites to allow, by Go's names. Empty for the defaults. Does not affect TLS 1.3.",
  ),
  'tls-min-version': string('', 'Oldest TLS version to accept: VersionTLS10 to VersionTLS13. Empty for VersionTLS12.'),
});

export function checkTlsPolicy(flags: Values<typeof tlsPolicy>, warn: (message: string) => void): void {
  for (const suite of flags['cipher-suites']) {
    if (CIPHER_SUITES.includes(suite)) continue;
    const near = nearest(suite, CIPHER_SUITES);
    throw new FlagError('cipher-suites', `${JSON.stringify(suite)} is unknown or insecure; the nearest one is ${near}`);
  }
  const named = flags['tls-min-version'];
  const version = tlsVersion(named);
  if (version === undefined) {
    throw new FlagError(
      'tls-min-version',
      `unknown version ${JSON.stringify(named)}: want VersionTLS10 to VersionTLS13`,
    );
  }
  if (version === 'TLSv1' || version === 'TLSv1.1') {
    warn(`--tls-min-version=${named} accepts versions that are insecure (RFC 8996)`);
  }
}

export const adminTls = ownTopic('TLS: admin port', {
  'admin-server-cert': string(
    '',
    'Certificate of the admin port, with its chain. With it, every client of that port needs one, also for /metrics. Without it, the admin RPC works only on loopback.',
  ),
  'admin-server-key': string('', 'Private key of --admin-server-cert.'),
  'admin-ca-cert': string('', "CA certificates that sign operators' certificates."),
});

/** Of the admin port: its certificates, or its unix socket. */
export function checkAdminTls(flags: Values<typeof adminTls> & { readonly 'admin-uds-name': string }): void {
  const path = flags['admin-uds-name'];
  const fault = path === '' ? undefined : faultOfSocketPath(path);
  if (fault !== undefined) throw new FlagError('admin-uds-name', fault);
  if (path !== '' && flags['admin-server-cert'] !== '')
    throw new FlagError(
      'admin-server-cert',
      'has no effect with --admin-uds-name: who may open the socket may do everything',
    );
  checkTlsFiles(flags, 'admin-server-cert', 'admin-server-key', 'admin-ca-cert');
  checkTogether(flags, 'admin-server-cert', 'admin-ca-cert');
}

/** Whose certificates each of these flags' authorities sign. A program has some of them. */
const EDGES = { 'cluster-ca-cert': 'agents', 'server-ca-cert': 'callers', 'admin-ca-cert': 'operators' } as const;

type Edge = keyof typeof EDGES;

/** Warns of an authority that signs for two edges: a certificate is believed for who signed it, so one of either opens both. */
export function warnOfSharedAuthorities(flags: Partial<Record<Edge, string>>, warn: (message: string) => void): void {
  const edges = Object.keys(EDGES) as Edge[];
  for (const [index, one] of edges.entries()) {
    for (const other of edges.slice(index + 1)) {
      const shared = sharedAuthority([one, flags[one] ?? ''], [other, flags[other] ?? '']);
      if (shared === undefined) continue;
      warn(
        `--${one} and --${other} share the CA ${shared}: certificates of ${EDGES[one]} also work as certificates of ${EDGES[other]}. ` +
          'Use a separate CA for each (isthmus certs makes them)',
      );
    }
  }
}

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

export const CIPHER_SUITES: readonly string[] = Object.keys(OPENSSL_NAMES);

const ALL_TLS13 = CIPHER_SUITES.filter((name) => !name.includes('_WITH_'));

/** Converts Go's names to the `ciphers` of node:tls. Returns undefined for an empty list, which means the default. */
export function opensslCiphers(names: readonly string[]): string | undefined {
  const chosen = names.flatMap((name) => (name.includes('_WITH_') ? (OPENSSL_NAMES[name] ?? []) : []));
  return chosen.length === 0 ? undefined : [...ALL_TLS13, ...chosen].join(':');
}

/** By Go's names. An empty one is upstream's default. */
const VERSIONS: ReadonlyMap<string, SecureVersion> = new Map([
  ['', 'TLSv1.2'],
  ['VersionTLS10', 'TLSv1'],
  ['VersionTLS11', 'TLSv1.1'],
  ['VersionTLS12', 'TLSv1.2'],
  ['VersionTLS13', 'TLSv1.3'],
]);

/** Converts Go's name of a TLS version to that of node:tls. Returns undefined for an unknown name. */
export function tlsVersion(name: string): SecureVersion | undefined {
  return VERSIONS.get(name);
}
