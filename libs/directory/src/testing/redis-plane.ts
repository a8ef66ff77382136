import { after, before } from 'node:test';
import { changed } from '@isthmus/runtime/testing';
import { DIRECTORY } from '../defaults.ts';
import type { RedisRegistryOptions } from '../redis/options.ts';
import { redisRegistry } from '../redis/registry.ts';
import type { Registry } from '../registry.ts';
import type { ContractPlane } from './contract.ts';

/**
 * Ten times as fast as in production, so that a test sees expiry and flaps within a second. But a hub must be missing for longer before
 * it is considered gone, and a command may take longer, so that a busy machine causes no failure.
 */
export const FAST = {
  beatMs: 200,
  ttlMs: 1_000,
  graceMs: 3_000,
  lookMs: 100,
  flapMs: 300,
  coalesceMs: 5,
  memberBeatMs: 200,
  memberTtlMs: 1_000,
  commandMs: 3_000,
  backoffCapMs: 200,
};

/** For tests in which nothing fails: nothing expires, and no command times out. */
export const UNHURRIED = { ...FAST, ttlMs: 60_000, memberTtlMs: 60_000, commandMs: 60_000 };

/** Gives registries these times during the tests of a suite. Call it where hooks may stand. */
export function timesOfSuite(times: Partial<typeof DIRECTORY>): void {
  let given: Disposable | undefined;
  before(() => {
    given = changed(DIRECTORY, times);
  });
  after(() => given?.[Symbol.dispose]());
}

let planes = 0;

/** A plane of its own on a shared server. */
export class RedisPlane implements ContractPlane {
  readonly #options: RedisRegistryOptions;
  readonly #registries: Registry[] = [];

  constructor(server: { readonly url: string }, options: Partial<RedisRegistryOptions> = {}) {
    this.#options = { url: server.url, plane: `test-${++planes}`, ...options };
  }

  get name(): string {
    return this.#options.plane;
  }

  connect(options: Partial<RedisRegistryOptions> = {}): Registry {
    const registry = redisRegistry({ ...this.#options, ...options });
    this.#registries.push(registry);
    return registry;
  }

  async close(): Promise<void> {
    await Promise.all(this.#registries.map((registry) => registry.close()));
  }
}
