import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resumeBudget } from './resume.ts';

const MIB = 1024 * 1024;

test('tunnels keep what the flag allows, but no more than a quarter of the memory limit', () => {
  for (const [wanted, limit, kept] of [
    [64, 0, 64],
    [64, 512, 64],
    [64, 256, 64],
    [64, 128, 32],
    [16, 128, 16],
    [64, 65, 16.25],
  ] as const)
    assert.equal(resumeBudget(wanted * MIB, limit * MIB), kept * MIB, `${wanted} of ${limit} MiB`);
});

test('where memory is tiny, tunnels keep nothing together', () => {
  for (const limit of [64, 48, 30]) assert.equal(resumeBudget(64 * MIB, limit * MIB), 0, `${limit} MiB`);
});
