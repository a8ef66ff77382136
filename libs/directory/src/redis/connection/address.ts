export interface HostPort {
  readonly host: string;
  readonly port: number;
}

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

/** Where the Redis of a plane is, parsed from its URL. */
export interface RedisAddress {
  readonly kind: 'standalone' | 'sentinel' | 'cluster';
  /** The server itself, or the Sentinels or Cluster nodes that know where it is. */
  readonly seeds: readonly HostPort[];
  /** The name of the primary at the Sentinels; empty for the other kinds. */
  readonly primary: string;
  readonly db: number;
  readonly tls: boolean;
  readonly user: Credentials;
  /** Credentials for the Sentinels themselves. */
  readonly sentinelUser: Credentials;
}

const SHAPES = {
  standalone: 'redis://[user[:password]@]host[:port][/db]',
  sentinel:
    'redis+sentinel://[user[:password]@]host[:port],.../primary[/db][?sentinel-username=name&sentinel-password=word]',
  cluster: 'redis+cluster://[user[:password]@]host[:port],...',
} as const;

const URL_PARTS =
  /^redis(s?)(?:\+(sentinel|cluster))?:\/\/(?:([^@/?#\s]*)@)?([^@/?#\s]+)(?:\/([^?#\s]*))?(?:\?([^#\s]*))?$/;
const NODE = /^(\[[\da-f:.]+\]|[^:[\]]+)(?::(\d{1,5}))?$/i;
const PATHS = { standalone: /^()(\d{0,4})$/, sentinel: /^([\w.-]+)(?:\/(\d{0,4}))?$/, cluster: /^()()$/ };

/** @throws RangeError for anything but a Redis URL. The message does not repeat the URL, which may hold a password. */
export function parseAddress(url: string): RedisAddress {
  const parts = URL_PARTS.exec(url);
  const kind = (parts?.[2] ?? 'standalone') as RedisAddress['kind'];
  const address = parts && readParts(kind, parts);
  if (address) return address;
  const wanted = parts ? SHAPES[kind] : Object.values(SHAPES).join(', ');
  throw new RangeError(`bad Redis URL: want ${wanted}; rediss for TLS`);
}

function readParts(
  kind: RedisAddress['kind'],
  [, tls, , userInfo, hosts, path, query]: string[],
): RedisAddress | undefined {
  const seeds = (hosts as string).split(',').map((node) => readNode(node, kind === 'sentinel' ? 26379 : 6379));
  const place = PATHS[kind].exec(path ?? '');
  const [username = '', ...password] = (userInfo ?? '').split(':');
  const user = readCredentials(username, password.join(':'));
  const sentinelUser = readQuery(kind, query ?? '');
  if (!place || !user || !sentinelUser || !seeds.every((seed) => seed !== undefined)) return undefined;
  if (kind === 'standalone' && seeds.length > 1) return undefined;
  const [, primary = '', db] = place;
  return { kind, seeds, primary, db: Number(db ?? 0), tls: tls === 's', user, sentinelUser };
}

function readNode(text: string, defaultPort: number): HostPort | undefined {
  const [, host, port] = NODE.exec(text) ?? [];
  if (!host || Number(port) > 65535) return undefined;
  return { host: host.replace(/^\[|\]$/g, ''), port: Number(port ?? defaultPort) };
}

function readCredentials(username: string, password: string): Credentials | undefined {
  try {
    return { username: decodeURIComponent(username), password: decodeURIComponent(password) };
  } catch {
    return undefined;
  }
}

function readQuery(kind: RedisAddress['kind'], query: string): Credentials | undefined {
  const parameters = new Map(new URLSearchParams(query));
  const username = parameters.get('sentinel-username') ?? '';
  const password = parameters.get('sentinel-password') ?? '';
  for (const name of ['sentinel-username', 'sentinel-password']) parameters.delete(name);
  if (parameters.size > 0 || (kind !== 'sentinel' && query !== '')) return undefined;
  return { username, password };
}
