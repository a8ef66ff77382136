import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import type { SecureVersion, Server as TlsServer } from 'node:tls';
import { formatDestination, type Member } from '@isthmus/tunnel';
import type { Identity } from './admin/status.ts';
import type { AdminTls } from './admin-listener.ts';
import { opensslCiphers, tlsVersion } from './flags/ciphers.ts';
import type { AgentValues, GatewayValues } from './flags/programs.ts';
import type { REDIS_CREDENTIALS } from './flags/topics/plane.ts';

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

/** Certificates of this process for connections with other gateways and hubs. */
export function peerTls(flags: Pick<GatewayValues, 'peer-cert' | 'peer-key' | 'peer-ca-cert'>): TlsFiles {
  return { cert: flags['peer-cert'], key: flags['peer-key'], ca: flags['peer-ca-cert'] };
}

interface TlsFiles {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

type RedisTlsFlags = Pick<GatewayValues, 'redis-cert' | 'redis-key' | 'redis-ca-cert'>;

/** Certificates of this process for connections to Redis and its Sentinels. */
export function redisTls(flags: RedisTlsFlags): TlsFiles {
  return { cert: flags['redis-cert'], key: flags['redis-key'], ca: flags['redis-ca-cert'] };
}

type RedisFlags = RedisTlsFlags & Pick<GatewayValues, 'redis-url' | 'plane' | (typeof REDIS_CREDENTIALS)[number]>;

/** The plane's registry. @param read makes a TLS context of files */
export function redisOptions<T>(flags: RedisFlags, read: (files: TlsFiles) => T) {
  const kept = (username: (typeof REDIS_CREDENTIALS)[number], password: (typeof REDIS_CREDENTIALS)[number]) => ({
    ...(flags[username] && { username: textIn(flags[username]) }),
    ...(flags[password] && { password: textIn(flags[password]) }),
  });
  return {
    url: flags['redis-url'],
    plane: flags.plane,
    tls: () => read(redisTls(flags)),
    credentials: () => ({
      user: kept('redis-username-file', 'redis-password-file'),
      sentinelUser: kept('redis-sentinel-username-file', 'redis-sentinel-password-file'),
    }),
  };
}

/** Without the line's end, which editors and `echo` add. */
function textIn(path: string): string {
  return readFileSync(path, 'utf8').replace(/\r?\n$/, '');
}

type AdminTlsFlags = Pick<AgentValues, 'admin-server-cert' | 'admin-server-key' | 'admin-ca-cert'>;

/** Makes the admin port's TLS server, of files. */
type CreateAdmin = (files: TlsFiles & ReturnType<typeof tlsPolicy>, ...rest: Parameters<AdminTls>) => TlsServer;

/** Returns the admin port's own TLS server, or undefined without its certificates. */
function adminTls(flags: AdminTlsFlags, policy: ReturnType<typeof tlsPolicy>, create: CreateAdmin) {
  const { 'admin-server-cert': cert, 'admin-server-key': key, 'admin-ca-cert': ca } = flags;
  return cert === '' ? undefined : (...rest: Parameters<AdminTls>) => create({ cert, key, ca, ...policy }, ...rest);
}

type OperationsFlags = AdminTlsFlags &
  Parameters<typeof tlsPolicy>[0] &
  Pick<GatewayValues, 'health-bind-address' | 'health-port' | 'admin-bind-address' | 'admin-port' | 'enable-profiling'>;

/** Returns the ports for operators, the same for every server-side program. */
export function operationsPorts(flags: OperationsFlags, create: CreateAdmin) {
  const tls = adminTls(flags, tlsPolicy(flags), create);
  return {
    health: { host: flags['health-bind-address'], port: flags['health-port'] },
    admin: { host: flags['admin-bind-address'], port: flags['admin-port'], tls },
    profiling: flags['enable-profiling'],
  };
}

type AgentOperationsFlags = AdminTlsFlags &
  Pick<
    AgentValues,
    'health-server-host' | 'health-server-port' | 'admin-bind-address' | 'admin-server-port' | 'enable-profiling'
  >;

/** Like `operationsPorts`, with the names of an agent's flags. */
export function agentOperationsPorts(flags: AgentOperationsFlags, create: CreateAdmin) {
  return {
    health: { host: flags['health-server-host'], port: flags['health-server-port'] },
    admin: { host: flags['admin-bind-address'], port: flags['admin-server-port'], tls: adminTls(flags, {}, create) },
    profiling: flags['enable-profiling'],
  };
}

type MemberFlags = Pick<
  GatewayValues,
  'server-id' | 'zone' | 'advertise-admin-address' | 'admin-bind-address' | 'admin-port'
>;

const EVERY_ADDRESS: readonly string[] = ['', '0.0.0.0', '::'];

/** Returns this process's entry in the plane's list of members. */
export function memberOf(flags: MemberFlags, roles: Member['roles'], version: string): Member {
  const { 'admin-bind-address': bind, 'admin-port': port } = flags;
  const machine = hostname();
  const bound = formatDestination({ host: EVERY_ADDRESS.includes(bind) ? machine : bind, port });
  return {
    ...{ memberId: flags['server-id'], roles, version, zone: flags.zone, since: Date.now(), host: machine },
    adminAddress: flags['advertise-admin-address'] || bound,
  };
}

type IdentityFlags = Pick<GatewayValues, 'server-id' | 'zone' | 'plane' | 'redis-url'>;

/** Returns what a server-side program says about itself on its admin port. */
export function identityOf(flags: IdentityFlags, program: string, roles: Identity['roles']): Identity {
  const id = flags['server-id'];
  return {
    ...{ program, roles, zone: flags.zone, memberId: id, hubId: roles.includes('hub') ? id : '', agentId: '' },
    plane: flags['redis-url'] === '' ? '' : flags.plane,
  };
}
