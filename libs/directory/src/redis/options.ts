import type { TlsFiles } from '@isthmus/runtime';
import type { Destination } from '@isthmus/tunnel';

/** Credentials from files. They replace those in the URL. */
interface KeptCredentials {
  readonly user?: Partial<Credentials>;
  readonly sentinelUser?: Partial<Credentials>;
}

/** Called for every connection, so that it uses a rotated password. */
export type CredentialSource = () => KeptCredentials;

export interface RedisRegistryOptions {
  /**
   * `redis://[user[:password]@]host[:port][/db]`; `redis+sentinel://[user[:password]@]host[:port],.../primary[/db]`, with
   * `?sentinel-username=...&sentinel-password=...` for Sentinels that require them;
   * `redis+cluster://[user[:password]@]host[:port],...`. Use `rediss` instead of `redis` for TLS, also to Sentinels and Cluster nodes.
   */
  readonly url: string;
  /** Name of the plane, and the prefix and hash tag of all its keys. Letters, digits, `.`, `_` and `-`. */
  readonly plane: string;
  /** Certificates for TLS, read for every connection, so that a renewed file takes effect. Default: no client certificate, and the system's authorities. */
  readonly tls?: TlsFiles;
  /** Users and passwords in place of those in the URL. Default: the URL's. */
  readonly credentials?: CredentialSource;
  /** Called with each new reason why the credentials cannot be read, and with undefined once they can. Those read last stay in use. */
  readonly fault?: (error: Error | undefined) => void;
}

const PLANE_NAME = /^[\w.-]{1,64}$/;

/** The keys of a plane. The braces are a hash tag: in a Cluster it puts all keys into one slot, so that a script may use several. */
export interface Keys {
  /** Hash: hub id to the incarnation that is in charge. */
  readonly hubs: string;
  /**
   * Hash: `epoch`, which changes each time the store was emptied; `seq`, the number of changes in that epoch; `hub:` and a hub id, to the
   * hub's last HubRecord as JSON, which stays while the store takes no writes and `hub` expires.
   */
  readonly meta: string;
  /** Stream of changes; an entry's id is `epoch-seq`. */
  readonly changes: string;
  /**
   * Hash: tenant and agent id as JSON, to the version of the last decision, `+` (in quarantine) or `-` (released), and its Quarantine
   * as JSON.
   */
  readonly quarantines: string;
  /** Hash: a process's start and id, to the time of its last write (in milliseconds of Redis' clock), a space, and its Member as JSON. */
  readonly members: string;
  /** String with expiry: the number of writes that the hub did, a space, its HubRecord as JSON. */
  hub(hubId: string): string;
  /** Hash: session id, to the record's version, a space, and its SessionRecord as JSON. */
  sessions(hubId: string): string;
  /** Like `sessions`, while a hub writes all of them. Renamed to it in one step when complete. */
  staged(hubId: string, incarnation: number, mark: number): string;
}

/** @throws RangeError for a plane name that cannot be a key prefix. */
export function planeKeys(plane: string): Keys {
  if (!PLANE_NAME.test(plane)) {
    throw new RangeError(
      `bad plane name ${JSON.stringify(plane)}: want 1 to 64 letters, digits, dots, dashes, underscores`,
    );
  }
  const tag = `{${plane}}`;
  return {
    hubs: `${tag}:hubs`,
    meta: `${tag}:meta`,
    changes: `${tag}:changes`,
    quarantines: `${tag}:quarantines`,
    members: `${tag}:members`,
    hub: (hubId) => `${tag}:hub:${hubId}`,
    sessions: (hubId) => `${tag}:sessions:${hubId}`,
    staged: (hubId, incarnation, mark) => `${tag}:staged:${hubId}:${incarnation}:${mark}`,
  };
}

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

/** Where the Redis of a plane is, parsed from its URL. */
export interface RedisAddress {
  readonly kind: 'standalone' | 'sentinel' | 'cluster';
  /** The server itself, or the Sentinels or Cluster nodes that know where it is. */
  readonly seeds: readonly Destination[];
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

function readNode(text: string, defaultPort: number): Destination | undefined {
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
