import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { changed, until } from '@isthmus/runtime/testing';
import { DIRECTORY } from '../defaults.ts';
import type { MemberEntry } from '../registry.ts';
import { registryContract } from '../testing/contract.ts';
import { member } from '../testing/observer.ts';
import { RedisPlane, timesOfSuite, UNHURRIED } from '../testing/redis-plane.ts';
import { type RedisServer, redisMissing, startRedis } from '../testing/redis-server.ts';
import type { RedisConnection } from './connection.ts';
import { planeKeys } from './options.ts';
import { redisMember } from './registry.ts';

describe('registry', () => {
  const skip = redisMissing();
  let server: RedisServer;
  timesOfSuite(UNHURRIED);

  before(async () => {
    if (!skip) server = await startRedis();
  });

  after(async () => {
    await server?.stop();
  });

  registryContract('Redis', async () => new RedisPlane(server), { skip });
});

/** A member whose store answers as `run` does. */
function joined(run: () => Promise<unknown>): { times: number[]; membership: MemberEntry } {
  const times: number[] = [];
  const connection = {
    run() {
      times.push(performance.now());
      return run();
    },
  };
  return {
    times,
    membership: redisMember(member('a'), connection as unknown as RedisConnection, planeKeys('p')),
  };
}

test('a member writes no more often than its interval allows, even if the store fails', async () => {
  using _times = changed(DIRECTORY, { memberBeatMs: 30 });
  for (const run of [() => Promise.resolve(), () => Promise.reject(new Error('away'))]) {
    const { times, membership } = joined(run);
    await until(async () => times.length >= 5, 'five writes');
    const gaps = times.slice(1).map((time, index) => time - (times[index] as number));
    // A timer may fire a millisecond early.
    assert.ok(Math.min(...gaps) >= 29, `${gaps}`);
    await membership.close();
  }
});

test('a leaving member says so at once, and writes nothing else', async () => {
  using _times = changed(DIRECTORY, { memberBeatMs: 60_000 });
  const { times, membership } = joined(() => Promise.resolve());
  await until(async () => times.length === 1, 'the first write');
  await membership.close();
  assert.equal(times.length, 2);
});
