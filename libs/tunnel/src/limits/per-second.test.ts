import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PerSecond } from './per-second.ts';

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
