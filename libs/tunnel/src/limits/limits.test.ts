import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PerSecond, TokenBucket } from './limits.ts';

function bucket() {
  const clock = { now: 0 };
  return { clock, bucket: new TokenBucket(() => clock.now) };
}

test('a bucket begins full, refuses what it does not have, and fills with time', () => {
  const { clock, bucket: tokens } = bucket();
  const rate = { perSecond: 10, atOnce: 3 };
  assert.deepEqual(
    [1, 2, 3, 4].map(() => tokens.take(1, rate)),
    [true, true, true, false],
  );
  clock.now += 99;
  assert.equal(tokens.take(1, rate), false);
  clock.now += 2;
  assert.equal(tokens.take(1, rate), true);
  clock.now += 1e9;
  assert.equal(tokens.left(rate), 3);
});

test('in any period no more is taken than the burst and what the period adds', () => {
  const { clock, bucket: tokens } = bucket();
  const rate = { perSecond: 100, atOnce: 40 };
  const taken: number[] = [];
  for (let step = 0; step < 5000; step++) {
    clock.now += (step * 7919) % 11;
    if (tokens.take(1, rate)) taken.push(clock.now);
  }
  for (let first = 0; first < taken.length; first += 17)
    for (const last of [first + 40, first + 200, taken.length - 1].filter((at) => at < taken.length)) {
      const most = rate.atOnce + (((taken[last] as number) - (taken[first] as number)) / 1000) * rate.perSecond + 1;
      assert.ok(last - first + 1 <= most, `${last - first + 1} of ${most} between ${first} and ${last}`);
    }
  assert.ok(taken.length > (clock.now / 1000) * rate.perSecond - 1, 'and no less');
});

test('a charge may leave a debt, which time pays', () => {
  const { clock, bucket: tokens } = bucket();
  const rate = { perSecond: 1000, atOnce: 100 };
  assert.equal(tokens.charge(600, rate), -500);
  clock.now += 499;
  assert.equal(tokens.left(rate), -1);
  clock.now += 2;
  assert.equal(tokens.left(rate), 1);
});

test('a rate may change at any time, also from and to unlimited', () => {
  const { clock, bucket: tokens } = bucket();
  const unlimited = { perSecond: Number.POSITIVE_INFINITY, atOnce: Number.POSITIVE_INFINITY };
  const rate = { perSecond: 1, atOnce: 2 };
  assert.equal(tokens.charge(1e9, unlimited), Number.POSITIVE_INFINITY);
  assert.equal(tokens.left(rate), 2);
  assert.equal(tokens.charge(5, rate), -3);
  assert.equal(tokens.left(unlimited), Number.POSITIVE_INFINITY);
  clock.now += 1000;
  assert.equal(tokens.left({ perSecond: 1, atOnce: 1 }), 1);
});

test('what happened in the last full second is its count', () => {
  let now = 0;
  const count = new PerSecond(() => now);
  const seen = [
    [0, 2],
    [900, 3],
    [1000, 1],
    [1999, 0],
    [2000, 7],
    [4000, 0],
  ].map(([at = 0, more = 0]) => {
    now = at;
    count.add(more);
    return count.last;
  });
  assert.deepEqual(seen, [0, 0, 5, 5, 1, 0]);
});
