import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DialRates } from './recent-dials.ts';

test('a window counts the dials of its seconds and no others', () => {
  const rates = new DialRates(0);
  for (let second = 0; second < 100; second++) rates.count(second * 1000 + 500, second % 2 === 0);
  const now = 99_600;
  assert.deepEqual(rates.over(10, now), { windowMs: 10_600, dials: 11, failures: 5 });
  assert.deepEqual(rates.over(60, now), { windowMs: 60_600, dials: 61, failures: 30 });
});

test('any number of seconds without a dial counts as zero', () => {
  const rates = new DialRates(0);
  rates.count(500, true);
  assert.deepEqual(rates.over(10, 10_900), { windowMs: 10_900, dials: 1, failures: 1 });
  assert.deepEqual(rates.over(10, 11_000), { windowMs: 10_000, dials: 0, failures: 0 });
  assert.equal(rates.over(60, 60_999).dials, 1);
  assert.equal(rates.over(60, 1_000_000).dials, 0);
});

test('a young process has a short window', () => {
  const rates = new DialRates(5_250);
  rates.count(5_400, false);
  assert.deepEqual(rates.over(60, 5_500), { windowMs: 250, dials: 1, failures: 0 });
});
