import { createHash } from 'node:crypto';
import { join } from 'node:path';
// Not all of the package: agents load this file too.
import { parseAddress, planeKeys } from '@isthmus/directory/redis/options';
import { parseDestination } from '@isthmus/tunnel';
import { checkTlsFiles, checkTogether, faultOfDirectory, faultOfSocketPath, readFlagFile } from '../files.ts';
import { checked, FlagError, int, ownTopic, string, type Values } from '../flag.ts';
import { SERVER_PORTS } from './callers.ts';

export const membership = ownTopic('Plane', {
  'redis-url': string(
    '',
    'URL of the registry: redis://[user[:password]@]host[:port][/db], redis+sentinel://...host[:port],.../primary[/db] ' +
      '(?sentinel-username=name&sentinel-password=word), or redis+cluster://...host[:port],... rediss for TLS.',
    { shown: withoutPasswords },
  ),
  plane: string('isthmus', 'Name of the plane. Gateways and hubs with one name and registry form it.'),
  zone: string(
    '',
    'Zone of this process. Dials prefer sessions in their own zone; in proxy-server, those of its own hub.',
  ),
});

export const tenants = ownTopic('Tenants', {
  'tenants-dir': string(
    '',
    'Directory with one YAML file a tenant (docs/TENANTS.md). Changes apply within 5s. Empty: one tenant, default.',
  ),
});

const REREAD = 'Read for each connection';

export const redisCredentials = ownTopic('Plane', {
  'redis-username-file': string('', `File with the user name for Redis. Overrides the one in --redis-url. ${REREAD}.`),
  'redis-password-file': string('', `File with the password for Redis. Overrides the one in --redis-url. ${REREAD}.`),
  'redis-sentinel-username-file': string('', `File with the user name for Sentinels. ${REREAD}.`),
  'redis-sentinel-password-file': string('', `File with the password for Sentinels. ${REREAD}.`),
});

export const redisTls = ownTopic('TLS: to Redis', {
  'redis-ca-cert': string('', "CA certificates that sign Redis' certificates. Empty for the system's."),
  'redis-cert': string('', 'Client certificate for Redis and its Sentinels, with its chain.'),
  'redis-key': string('', 'Private key of --redis-cert.'),
});

export const advertising = ownTopic('Plane', {
  'advertise-address': string('', 'host:port where gateways reach --peer-port.'),
  'advertise-agent-address': string(
    '',
    'host:port where agents reach --agent-port. Empty if one load balancer leads to all servers.',
  ),
});

export const adminAdvertising = ownTopic('Plane', {
  'advertise-admin-address': string(
    '',
    "host:port where isthmus reaches --admin-port. Empty: --admin-bind-address, or this machine's name.",
  ),
});

export const peerListening = ownTopic('Listening: gateways', {
  'peer-port': int(8097, 'TCP port for the gateways of the plane.', {
    port: { bind: 'peer-bind-address', ...SERVER_PORTS },
  }),
  'peer-bind-address': string('', 'Address of --peer-port. Empty for all.'),
});

export const peerTls = ownTopic('TLS: between gateways and hubs', {
  'peer-cert': string('', 'Certificate for connections with other gateways and hubs, with its chain.'),
  'peer-key': string('', 'Private key of --peer-cert.'),
  'peer-ca-cert': string('', "CA certificates that sign other gateways' and hubs' certificates."),
});

type PlaneFlags = Values<typeof membership>;
type RedisTls = Values<typeof redisTls>;
type PeerTls = Values<typeof peerTls>;
type Advertising = Values<typeof advertising>;
type AdminAdvertising = Values<typeof adminAdvertising>;

/** Returns a URL, or a list of addresses in one, with its passwords removed. */
function withoutPasswords(url: string): string {
  return url.replace(/([?&][\w-]*password=)[^&]*/gi, '$1[redacted]').replace(/(:\/\/[^\s/@:]*):.*@/, '$1:[redacted]@');
}

/** As the registry reads them. A URL may hold a password, so no message repeats it. */
export function checkMembership(flags: PlaneFlags): void {
  checked('plane', () => planeKeys(flags.plane));
  if (flags['redis-url'] !== '') checked('redis-url', () => parseAddress(flags['redis-url']));
}

export function checkRedisTls(flags: PlaneFlags & RedisTls): void {
  checkTlsFiles(flags, 'redis-cert', 'redis-key', 'redis-ca-cert');
  const named = (['redis-ca-cert', 'redis-cert'] as const).find((name) => flags[name] !== '');
  if (named && !flags['redis-url'].startsWith('rediss')) {
    throw new FlagError(named, 'has no effect unless --redis-url begins with rediss');
  }
}

export function checkRedisCredentials(flags: PlaneFlags & Values<typeof redisCredentials>): void {
  for (const name of Object.keys(redisCredentials) as (keyof typeof redisCredentials)[]) {
    if (flags[name] === '') continue;
    if (flags['redis-url'] === '') throw new FlagError(name, 'has no effect without --redis-url');
    if (name.startsWith('redis-sentinel') && !/^rediss?\+sentinel:/.test(flags['redis-url'])) {
      throw new FlagError(name, 'has no effect unless --redis-url names Sentinels');
    }
    readFlagFile(name, flags[name]);
  }
}

/** Of a program that is nothing without others. */
export function requireRegistry(flags: PlaneFlags, why: string): void {
  if (flags['redis-url'] === '') throw new FlagError('redis-url', `must be set: ${why}`);
}

export function checkPeerTls(flags: PeerTls): void {
  checkTlsFiles(flags, 'peer-cert', 'peer-key', 'peer-ca-cert');
  checkTogether(flags, 'peer-cert', 'peer-ca-cert');
}

/** For a program that dials other processes of the plane, or is dialled by them. That link always uses mutual TLS. */
export function requirePeerTls(flags: PeerTls): void {
  if (flags['peer-cert'] === '')
    throw new FlagError('peer-cert', 'must be set: gateways and hubs connect with mutual TLS');
}

/** For a hub, which gateways of other processes dial unless it is alone. */
export function checkPeerListener(flags: PlaneFlags & Advertising & Values<typeof peerListening> & PeerTls): void {
  if (flags['redis-url'] === '') return;
  requirePeerTls(flags);
  if (flags['advertise-address'] === '') {
    throw new FlagError(
      'advertise-address',
      `must be set: gateways use it to reach this hub's --peer-port (${flags['peer-port']})`,
    );
  }
}

export function checkAdvertising(flags: Advertising): void {
  checkAddress('advertise-address', flags['advertise-address']);
  checkAddress('advertise-agent-address', flags['advertise-agent-address']);
}

export function checkAdminAdvertising(flags: AdminAdvertising): void {
  checkAddress('advertise-admin-address', flags['advertise-admin-address']);
}

function checkAddress(flag: string, address: string): void {
  if (address !== '') checked(flag, () => parseDestination(address));
}

export const peerSockets = ownTopic('Plane', {
  'peer-uds-dir': string(
    '',
    'Directory of unix sockets that link gateways and hubs of one machine without TLS. Who can open one can dial; who can make files there can pose as a hub.',
  ),
});

/**
 * Returns the path of a hub's socket in --peer-uds-dir. It stands for the plane and for the address where gateways reach the hub over TLS, and
 * is short, as the path of a socket must be.
 */
export function hubSocket(flags: Pick<Flags, 'peer-uds-dir' | 'plane'>, peerAddress: string): string {
  const name = createHash('sha256').update(`${flags.plane} ${peerAddress}`).digest('hex').slice(0, 16);
  return join(flags['peer-uds-dir'], `${name}.sock`);
}

type Flags = Values<typeof peerSockets & typeof membership & typeof tenants>;

/** A gateway alone has no socket of its own there, and no address to advertise. */
export function checkPeerSockets(flags: Flags & Partial<Advertising>): void {
  const { 'peer-uds-dir': directory, 'advertise-address': peerAddress } = flags;
  if (directory === '') return;
  if (flags['redis-url'] === '') throw new FlagError('peer-uds-dir', 'has no effect without --redis-url');
  if (flags['tenants-dir'] !== '') {
    throw new FlagError(
      'peer-uds-dir',
      'cannot be combined with --tenants-dir: on a socket, no certificate says for which tenants a gateway may dial',
    );
  }
  const fault =
    peerAddress === undefined ? faultOfDirectory(directory) : faultOfSocketPath(hubSocket(flags, peerAddress));
  if (fault !== undefined) throw new FlagError('peer-uds-dir', fault);
}
