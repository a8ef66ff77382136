import type { TlsSource } from './connection/connector.ts';
import type { CredentialSource } from './connection/credentials.ts';

/** All in milliseconds. */
export interface RedisTimings {
  /** How often a hub renews its record. */
  readonly beatMs: number;
  /** How long a hub's record lives without being renewed. */
  readonly ttlMs: number;
  /** How long a record must be missing before a watcher considers the hub gone. A living hub writes within that time. */
  readonly graceMs: number;
  /** How often a watcher checks for hubs that expired and for a store that was emptied. */
  readonly lookMs: number;
  /** How long a withdrawal waits for its session to come back. */
  readonly flapMs: number;
  /** How long an announcement waits for others to share its write. */
  readonly coalesceMs: number;
  /** How often a member writes that it is present. After a failure it waits as long. */
  readonly memberBeatMs: number;
  /** How long a silent member stays listed. */
  readonly memberTtlMs: number;
  /** Deadline of one command, and of connecting. */
  readonly commandMs: number;
  /** Longest pause between two connection attempts. */
  readonly backoffCapMs: number;
}

export const REDIS_TIMINGS: RedisTimings = {
  beatMs: 3_000,
  ttlMs: 8_000,
  graceMs: 5_000,
  lookMs: 1_000,
  flapMs: 2_000,
  coalesceMs: 20,
  memberBeatMs: 5_000,
  memberTtlMs: 16_000,
  commandMs: 1_200,
  backoffCapMs: 500,
};

/** Longest pause after a first failure, in milliseconds. Each further failure doubles it, up to `backoffCapMs`. */
export const FIRST_PAUSE_MS = 100;

export interface RedisRegistryOptions {
  /**
   * `redis://[user[:password]@]host[:port][/db]`; `redis+sentinel://[user[:password]@]host[:port],.../primary[/db]`, with
   * `?sentinel-username=...&sentinel-password=...` for Sentinels that require them;
   * `redis+cluster://[user[:password]@]host[:port],...`. Use `rediss` instead of `redis` for TLS, also to Sentinels and Cluster nodes.
   */
  readonly url: string;
  /** Name of the plane, and the prefix and hash tag of all its keys. Letters, digits, `.`, `_` and `-`. */
  readonly plane: string;
  /** Certificates for TLS. Default: no client certificate, and the system's authorities. */
  readonly tls?: TlsSource;
  /** Users and passwords in place of those in the URL. Default: the URL's. */
  readonly credentials?: CredentialSource;
  /** About how many changes the stream keeps for watchers that were cut off; one that missed more takes a snapshot. */
  readonly keptChanges?: number;
  readonly timings?: Partial<RedisTimings>;
}

/** About 4 MB of Redis memory. */
export const KEPT_CHANGES = 10_000;
