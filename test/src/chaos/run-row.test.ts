import assert from 'node:assert/strict';
import test from 'node:test';
import { doing } from './run-row.ts';

test('a strike names the door of a gateway that dies, and none where isthmus hold is the only door', async () => {
  const plane = { doors: [], carried: async () => [], missing: async () => undefined };
  const struck: string[] = [];
  const told = { strikes: [], measures: [], notes: [] };
  const beside = doing(plane, true, told);
  const { gateway } = await beside.strike({ gateway: 0 }, () => struck.push('beside'));
  assert.equal(gateway, 0);
  const held = doing({ ...plane, held: true }, true, told);
  await assert.rejects(
    held.strike({ gateway: 0 }, () => struck.push('held')),
    /isthmus hold/,
  );
  assert.deepEqual(struck, ['beside']);
});
