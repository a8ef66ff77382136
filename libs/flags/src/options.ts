import { hostname } from 'node:os';
import type { SecureVersion } from 'node:tls';
import type { Member } from '@isthmus/directory';
import { readNamedFile, type TlsFiles, type TlsSettings } from '@isthmus/runtime';
import { formatDestination } from '@isthmus/tunnel';
import type { GatewayValues } from './programs.ts';
import { hubSocket, type redisCredentials } from './topics/plane.ts';
import { opensslCiphers, tlsVersion } from './topics/tls.ts';

/** Options that several programs read from the same flags. */

/** TLS settings shared by all listeners of a program. */
export function tlsPolicy(flags: Pick<GatewayValues, 'cipher-suites' | 'tls-min-version'>): {
  ciphers?: string;
  minVersion?: SecureVersion;
} {
  const ciphers = opensslCiphers(flags['cipher-suites']);
  const minVersion = tlsVersion(flags['tls-min-version']);
  return { ...(ciphers && { ciphers }), ...(minVersion && { minVersion }) };
}

type CallerTlsFlags = Pick<
  GatewayValues,
  'server-cert' | 'server-key' | 'server-ca-cert' | 'cipher-suites' | 'tls-min-version'
>;

/** TLS settings where callers connect. */
export function callerTls(flags: CallerTlsFlags): TlsSettings {
  return { cert: flags['server-cert'], key: flags['server-key'], ca: flags['server-ca-cert'], ...tlsPolicy(flags) };
}

type CallerFlags = CallerTlsFlags &
  Pick<GatewayValues, 'uds-name' | 'delete-existing-uds-file' | 'server-port' | 'server-bind-address'>;

/** Where callers connect: a unix socket, a TCP port, or both. */
export function callerPorts(flags: CallerFlags) {
  const { 'uds-name': path, 'server-port': port, 'server-bind-address': host } = flags;
  const socket = { address: { path, deleteExisting: flags['delete-existing-uds-file'] } };
  const overTls = { address: { host, port }, tls: callerTls(flags) };
  return [...(path === '' ? [] : [socket]), ...(port === 0 ? [] : [overTls])];
}

type PeerTlsFlags = Pick<GatewayValues, 'peer-cert' | 'peer-key' | 'peer-ca-cert'>;

/** Certificates of this process for connections with other gateways and hubs. */
export function peerTls(flags: PeerTlsFlags): TlsFiles {
  return { cert: flags['peer-cert'], key: flags['peer-key'], ca: flags['peer-ca-cert'] };
}

/** How a gateway reaches hubs. */
export function peerLinks(flags: PeerTlsFlags & Pick<GatewayValues, 'peer-uds-dir' | 'plane'>) {
  const socketOf = (peerAddress: string) => hubSocket(flags, peerAddress);
  return { tls: peerTls(flags), ...(flags['peer-uds-dir'] !== '' && { socketOf }) };
}

type RedisTlsFlags = Pick<GatewayValues, 'redis-cert' | 'redis-key' | 'redis-ca-cert'>;

/** Certificates of this process for connections to Redis and its Sentinels. */
export function redisTls(flags: RedisTlsFlags): TlsFiles {
  return { cert: flags['redis-cert'], key: flags['redis-key'], ca: flags['redis-ca-cert'] };
}

type AdminTlsFlags = Pick<GatewayValues, 'admin-server-cert' | 'admin-server-key' | 'admin-ca-cert'>;

/** Certificates of the admin port; undefined if it has none. */
export function adminTls(flags: AdminTlsFlags): TlsFiles | undefined {
  const { 'admin-server-cert': cert, 'admin-server-key': key, 'admin-ca-cert': ca } = flags;
  return cert === '' ? undefined : { cert, key, ca };
}

type CredentialFlag = keyof typeof redisCredentials;

type RedisFlags = RedisTlsFlags & Pick<GatewayValues, 'redis-url' | 'plane' | CredentialFlag>;

/** How to reach the plane's registry. */
export function redisOptions(flags: RedisFlags) {
  const kept = (username: CredentialFlag, password: CredentialFlag) => ({
    ...(flags[username] && { username: textIn(flags[username]) }),
    ...(flags[password] && { password: textIn(flags[password]) }),
  });
  return {
    url: flags['redis-url'],
    plane: flags.plane,
    tls: redisTls(flags),
    credentials: () => ({
      user: kept('redis-username-file', 'redis-password-file'),
      sentinelUser: kept('redis-sentinel-username-file', 'redis-sentinel-password-file'),
    }),
  };
}

/** Without the line's end, which editors and `echo` add. */
function textIn(path: string): string {
  return readNamedFile(path)
    .toString()
    .replace(/\r?\n$/, '');
}

type MemberFlags = Pick<
  GatewayValues,
  'server-id' | 'zone' | 'advertise-admin-address' | 'admin-uds-name' | 'admin-bind-address' | 'admin-port'
>;

const EVERY_ADDRESS: readonly string[] = ['', '0.0.0.0', '::'];

/** Returns this process's entry in the plane's list of members. */
export function memberOf(flags: MemberFlags, roles: Member['roles'], version: string): Member {
  const { 'admin-bind-address': bind, 'admin-port': port } = flags;
  const machine = hostname();
  // A unix socket leads nobody here from another machine.
  const tcp = formatDestination({ host: EVERY_ADDRESS.includes(bind) ? machine : bind, port });
  const bound = flags['admin-uds-name'] === '' ? tcp : `unix:${flags['admin-uds-name']}`;
  return {
    memberId: flags['server-id'],
    roles,
    version,
    zone: flags.zone,
    since: Date.now(),
    host: machine,
    adminAddress: flags['advertise-admin-address'] || bound,
  };
}
