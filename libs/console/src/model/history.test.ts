import assert from 'node:assert/strict';
import { test } from 'node:test';
import { finished, lonePoints, minutesOf } from './history.ts';

const slot = (startMs: number, dials: number, p50Ms?: number) => {
  return { startMs, dials, failures: 0, p50Ms, p99Ms: p50Ms, sessions: 2, tunnels: dials };
};

test('the interval that still runs is left out of charts, and counted in the table', () => {
  const slots = [slot(50_000, 3), slot(60_000, 4, 7), slot(70_000, 1, 9)];
  assert.deepEqual(
    finished(slots).map(({ startMs }) => startMs),
    [50_000, 60_000],
  );
  assert.deepEqual(finished([slot(0, 1)]), []);
  assert.deepEqual(
    minutesOf(slots).map(({ cells }) => cells.slice(1)),
    [
      ['5', '0', '9.0 ms', '9.0 ms', 2, 1],
      ['3', '0', '–', '–', 2, 3],
    ],
  );
});

test('a value between two intervals without one is a point, as no line goes through it', () => {
  assert.deepEqual(lonePoints([1, null, 2, undefined, 3, 4, null, 5]), [0, 2, 7]);
  assert.deepEqual(lonePoints([null, 0, null]), [1]);
});
