import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Allowance } from './allowance.ts';

/** A burst after a rest may be a sixteenth larger, and the cost that crosses it. */
const MOST = 1701;
const LIMITS = { atOnce: 1600, perSecond: 100 };

function allowance() {
  const clock = { ms: 0, looks: 0 };
  const now = () => {
    clock.looks++;
    return clock.ms;
  };
  return { clock, bucket: new Allowance({ ...LIMITS, now }) };
}

/** What can be spent at once. */
function burst(bucket: Allowance): number {
  let spent = 0;
  while (bucket.spend(1)) spent++;
  return spent;
}

for (const before of [0, 1, 50]) {
  test(`a burst after a rest is no larger than one at once, with ${before} spent before the rest`, () => {
    const { clock, bucket } = allowance();
    for (let spent = 0; spent < before; spent++) bucket.spend(1);
    clock.ms = 60_000;
    const spent = burst(bucket);
    assert.ok(spent >= 1600 - before && spent <= MOST, `${spent}`);
    assert.ok(clock.looks < 20, `${clock.looks}`);
  });
}

test('a burst after a rest is no larger when something was earned before', () => {
  const { clock, bucket } = allowance();
  burst(bucket);
  bucket.earn(10_000);
  clock.ms = 60_000;
  const spent = burst(bucket);
  assert.ok(spent <= MOST, `${spent}`);
});

test('what is spent no faster than it comes back is never too much', () => {
  const { clock, bucket } = allowance();
  for (let spent = 0; spent < 100_000; spent++) {
    assert.ok(bucket.spend(1), `${spent}`);
    clock.ms += 10;
  }
});

test('an empty bucket fills as time goes by', () => {
  const { clock, bucket } = allowance();
  burst(bucket);
  clock.ms += 2000;
  const spent = burst(bucket);
  assert.ok(spent >= 198 && spent <= 200, `${spent}`);
});
