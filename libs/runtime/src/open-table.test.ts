import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpenTable } from './open-table.ts';

test('what is open is found by its id until it is deleted', () => {
  const table = new OpenTable<number, string>();
  for (const id of [1, 3, 5]) table.set(id, `stream ${id}`);
  table.set(3, 'another');
  table.delete(1);
  table.delete(1);
  assert.equal(table.size, 2);
  assert.equal(table.get(1), undefined);
  assert.equal(table.get(3), 'another');
  assert.equal(table.has(5), true);
  assert.deepEqual([...table.values()], ['another', 'stream 5']);
});

test('what closes while the table is gone through is not seen any more', () => {
  const table = new OpenTable<number, number>();
  for (const id of [1, 3, 5]) table.set(id, id);
  const seen: number[] = [];
  for (const id of table.values()) {
    seen.push(id);
    table.delete(id);
    table.delete(3);
  }
  assert.deepEqual(seen, [1, 5]);
});
