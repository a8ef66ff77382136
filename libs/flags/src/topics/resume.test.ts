import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resumeBudget } from './resume.ts';

const MIB = 1024 * 1024;

test('tunnels keep what the flag allows, but no more than a quarter of what a memory limit leaves', () => {
  for (const [wanted, limit, kept] of [
    [64, 0, 64],
    [64, 512, 64],
    [64, 288, 64],
    [64, 256, 56],
    [64, 128, 24],
    [16, 128, 16],
    [64, 48, 4],
    [64, 32, 0],
    [64, 30, 0],
  ] as const)
    assert.equal(resumeBudget(wanted * MIB, limit * MIB), kept * MIB, `${wanted} of ${limit} MiB`);
});
