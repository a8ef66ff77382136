import type { Redis } from 'ioredis';
import type { Credentials, RedisAddress } from './address.ts';

/** Credentials from files. They replace those in the URL. */
export interface KeptCredentials {
  readonly user?: Partial<Credentials>;
  readonly sentinelUser?: Partial<Credentials>;
}

/** Called for every connection, so that it uses a rotated password. */
export type CredentialSource = () => KeptCredentials;

/** Returns an address that reads its credentials on each access. While a file cannot be read, it has the last ones. */
export function withCredentials(address: RedisAddress, read: CredentialSource): RedisAddress {
  let last = read();
  const now = () => {
    try {
      last = read();
    } catch {
      // A rotation is under way. If the server rejects the last credentials, the next connection reads them again.
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
