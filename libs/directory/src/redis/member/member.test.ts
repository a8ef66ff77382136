import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { member } from '../../testing/records.ts';
import type { RedisConnection } from '../connection/connection.ts';
import { planeKeys } from '../keys.ts';
import { REDIS_TIMINGS } from '../options.ts';
import { RedisMember } from './member.ts';

/** A member whose store answers as `run` does. */
function joined(run: () => Promise<unknown>, memberBeatMs: number): { times: number[]; membership: RedisMember } {
  const times: number[] = [];
  const connection = {
    run() {
      times.push(performance.now());
      return run();
    },
  };
  const timings = { ...REDIS_TIMINGS, memberBeatMs };
  return {
    times,
    membership: new RedisMember(member('a'), connection as unknown as RedisConnection, planeKeys('p'), timings),
  };
}

test('a member writes no more often than its interval allows, even if the store fails', async () => {
  for (const run of [() => Promise.resolve(), () => Promise.reject(new Error('away'))]) {
    const { times, membership } = joined(run, 30);
    await until(async () => times.length >= 5, 'five writes');
    const gaps = times.slice(1).map((time, index) => time - (times[index] as number));
    // A timer may fire a millisecond early.
    assert.ok(Math.min(...gaps) >= 29, `${gaps}`);
    await membership.close();
  }
});

test('a leaving member says so at once, and writes nothing else', async () => {
  const { times, membership } = joined(() => Promise.resolve(), 60_000);
  await until(async () => times.length === 1, 'the first write');
  await membership.close();
  assert.equal(times.length, 2);
});
