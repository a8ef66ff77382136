import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Suspects } from './suspects.ts';

test('a suspect is avoided for a second, unless it answers', () => {
  let now = 0;
  const suspects = new Suspects(() => now);
  suspects.accuse('a', 'b');
  suspects.clear('b');
  assert.deepEqual([suspects.has('a'), suspects.has('b')], [true, false]);
  now = 1000;
  assert.equal(suspects.has('a'), false);
});

test('expired suspects are forgotten even if nobody asks about them', () => {
  let now = 0;
  const suspects = new Suspects(() => now);
  for (let round = 0; round < 100_000; round++) {
    now += 10;
    suspects.accuse(`session ${round}`);
    assert.ok(suspects.size <= 1001, `${suspects.size} suspects`);
  }
});
