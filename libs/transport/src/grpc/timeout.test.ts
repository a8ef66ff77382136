import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readTimeout } from './timeout.ts';

const TIMEOUTS: readonly [text: string | undefined, ms: number | undefined][] = [
  ['1H', 3_600_000],
  ['2M', 120_000],
  ['30S', 30_000],
  ['99999999m', 99_999_999],
  ['1500u', 1.5],
  ['0n', 0],
  [undefined, undefined],
  // Longer than a timer: no timeout at all.
  ['99999999H', undefined],
  ['', Number.NaN],
  ['10', Number.NaN],
  ['S', Number.NaN],
  ['1s', Number.NaN],
  ['-1S', Number.NaN],
  ['1.5S', Number.NaN],
  ['123456789S', Number.NaN],
];

for (const [text, ms] of TIMEOUTS) {
  test(`grpc-timeout ${JSON.stringify(text)} is ${ms} ms`, () => assert.equal(readTimeout(text), ms));
}
