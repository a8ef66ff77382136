import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { History } from '../rpc.ts';
import { finished, lonePoints, minutesOf, together } from './history.ts';

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
    minutesOf(slots).map(({ startMs: _, ...minute }) => Object.values(minute)),
    [
      [5, 0, 9, 9, 2, 1],
      [3, 0, undefined, undefined, 2, 3],
    ],
  );
});

test('a value between two intervals without one is a point, as no line goes through it', () => {
  assert.deepEqual(lonePoints([1, null, 2, undefined, 3, 4, null, 5]), [0, 2, 7]);
  assert.deepEqual(lonePoints([null, 0, null]), [1]);
});

test('several gateways are one: their dials and tunnels add up, and the slowest has the percentiles', () => {
  const history = (slots: History['slots']) => ({
    slotMs: 10_000,
    slots,
    refusals: [],
    cuts: [],
    cutsForgotten: 0,
    nowMs: 0,
  });
  const one = history([slot(50_000, 3, 4), slot(60_000, 1)]);
  const other = history([slot(60_000, 2, 9), slot(70_000, 5, 1)]);
  const { slots } = together([one, other]);
  assert.deepEqual(
    slots.map(({ startMs, dials, p99Ms, sessions, tunnels }) => [startMs, dials, p99Ms, sessions, tunnels]),
    [
      [50_000, 3, 4, 2, 3],
      [60_000, 3, 9, 2, 3],
      [70_000, 5, 1, 2, 5],
    ],
  );
});
