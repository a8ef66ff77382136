import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bufferSizesFor } from './memory.ts';

const MIB = 1024 * 1024;

test('where memory is tiny, 8 tunnels buffer less than 2 MiB', () => {
  const { stream, ahead, kept } = bufferSizesFor(30 * MIB);
  // A stream that has a byte less than it may hold takes in a whole read, which is 64 KiB whatever it may hold.
  const read = 64 * 1024;
  assert.ok(8 * (stream + read + ahead + stream + kept) < 2 * MIB);
});

test('where it is not, or nothing limits it, they have the usual sizes', () => {
  const usual = bufferSizesFor(0);
  assert.deepEqual(usual, { stream: 65_536, ahead: 131_072, kept: 262_144 });
  assert.deepEqual(bufferSizesFor(64 * MIB + 1), usual);
  assert.notDeepEqual(bufferSizesFor(64 * MIB), usual);
});
