import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DialHistory } from './recent-dials.ts';

const START = 1_000_000_000_000;
const SLOT = 10_000;

test('slots count dials and failures, and find quantiles to a fifth', () => {
  const history = new DialHistory(SLOT, START);
  for (let ms = 1; ms <= 1000; ms++) history.count(START + 1, ms, false);
  // Neither a refusal nor a dial at its deadline was answered so fast.
  for (let n = 0; n < 5000; n++) history.count(START + 1, n % 2 === 0 ? 0.1 : 30_000, true);
  const [slot] = history.slots(START + 1);
  assert.deepEqual([slot?.startMs, slot?.dials, slot?.failures], [START, 6000, 5000]);
  for (const [found, wanted] of [
    [slot?.p50Ms, 500],
    [slot?.p99Ms, 990],
  ] as const) {
    assert.ok(found !== undefined && Math.abs(found / wanted - 1) < 0.2, `${found} instead of ${wanted}`);
  }
});

test('a dial shorter than the first bucket, and one longer than the last, are counted', () => {
  const history = new DialHistory(SLOT, START);
  for (const ms of [0, 1e9]) history.count(START, ms, false);
  const [slot] = history.slots(START);
  assert.equal(slot?.dials, 2);
  assert.ok((slot?.p99Ms ?? 0) > 200_000);
});

test('slots without dials are there, and without quantiles', () => {
  const history = new DialHistory(SLOT, START);
  history.count(START, 5, false);
  history.count(START + 3 * SLOT, 5, false);
  const slots = history.slots(START + 3 * SLOT);
  assert.deepEqual(
    slots.map(({ dials }) => dials),
    [1, 0, 0, 1],
  );
  assert.deepEqual([slots[1]?.p50Ms, slots[1]?.sessions], [undefined, undefined]);
});

test('an hour is kept and no more, also after days of silence', () => {
  const history = new DialHistory(SLOT, START);
  for (let slot = 0; slot < 1000; slot++) history.count(START + slot * SLOT, 1, false);
  const now = START + 999 * SLOT;
  assert.equal(history.slots(now).length, 360);
  assert.equal(history.slots(now)[0]?.startMs, now - 359 * SLOT);
  const later = history.slots(now + 86_400_000);
  assert.equal(later.length, 360);
  assert.ok(later.every(({ dials, p50Ms }) => dials === 0 && p50Ms === undefined));
});

test('the last sample of a slot stays', () => {
  const history = new DialHistory(SLOT, START);
  history.sample(START, { sessions: 1, tunnels: 2 });
  history.sample(START + 5000, { sessions: 3, tunnels: 0 });
  const [slot] = history.slots(START + 6000);
  assert.deepEqual([slot?.sessions, slot?.tunnels], [3, 0]);
});

test('a clock that is set back loses nothing', () => {
  const history = new DialHistory(SLOT, START);
  history.count(START + SLOT, 1, false);
  history.count(START - 10 * SLOT, 1, true);
  const slots = history.slots(START - 10 * SLOT);
  assert.deepEqual(
    slots.map(({ dials }) => dials),
    [0, 2],
  );
});

/** Slots of a second. */
const counted = (now: number) => new DialHistory(1000, now);

test('a window counts the dials of its seconds and no others', () => {
  const rates = counted(0);
  for (let second = 0; second < 100; second++) rates.count(second * 1000 + 500, 1, second % 2 === 0);
  const now = 99_600;
  assert.deepEqual(rates.over(10, now), { windowMs: 10_600, dials: 11, failures: 5 });
  assert.deepEqual(rates.over(60, now), { windowMs: 60_600, dials: 61, failures: 30 });
});

test('any number of seconds without a dial counts as zero', () => {
  const rates = counted(0);
  rates.count(500, 1, true);
  assert.deepEqual(rates.over(10, 10_900), { windowMs: 10_900, dials: 1, failures: 1 });
  assert.deepEqual(rates.over(10, 11_000), { windowMs: 10_000, dials: 0, failures: 0 });
  assert.equal(rates.over(60, 60_999).dials, 1);
  assert.equal(rates.over(60, 1_000_000).dials, 0);
});

test('a young process has a short window', () => {
  const rates = counted(5_250);
  rates.count(5_400, 1, false);
  assert.deepEqual(rates.over(60, 5_500), { windowMs: 250, dials: 1, failures: 0 });
});
