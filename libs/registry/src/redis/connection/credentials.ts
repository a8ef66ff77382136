import type { Redis } from 'ioredis';
import type { Credentials, RedisAddress } from './address.ts';

/** What stands in files, in place of what the URL says. */
export interface KeptCredentials {
  readonly user?: Partial<Credentials>;
  readonly sentinelUser?: Partial<Credentials>;
}

/** Read anew for every connection, so that a password that was rotated is used. */
export type CredentialSource = () => KeptCredentials;

/** An address whose users are looked up whenever somebody asks for them. While a file cannot be read, they are as they were. */
export function withCredentials(address: RedisAddress, read: CredentialSource): RedisAddress {
  let last = read();
  const now = () => {
    try {
      last = read();
    } catch {
      // Amid a rotation. If what was read last does not hold any more, the server says so, and the next connection looks again.
    }
    return last;
  };
  return {
    ...address,
    get user() {
      return { ...address.user, ...now().user };
    },
    get sentinelUser() {
      return { ...address.sentinelUser, ...now().sentinelUser };
    },
  };
}

/** The client reads its options again when it connects again. */
export function keepCurrent(client: Redis, address: RedisAddress): void {
  for (const name of ['username', 'password'] as const) {
    Object.defineProperty(client.options, name, { get: () => address.user[name] || undefined });
  }
}
