import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LruMap } from './lru-map.ts';

test('the entry used longest ago makes room for another', () => {
  const removed: number[] = [];
  const map = new LruMap<string, number>(2, (value) => void removed.push(value));
  map.set('a', 1).set('b', 2);
  assert.equal(map.get('a'), 1);
  map.set('c', 3);
  assert.deepEqual(
    [[...map], map.get('b'), removed],
    [
      [
        ['a', 1],
        ['c', 3],
      ],
      undefined,
      [2],
    ],
  );
});

test('an entry that is written again counts once, and one that is deleted makes room', () => {
  const removed: number[] = [];
  const map = new LruMap<string, number>(2, (value) => void removed.push(value));
  map.set('a', 1).set('b', 2).set('a', 3);
  assert.deepEqual([[...map.values()], removed], [[2, 3], []]);
  map.delete('b');
  map.set('c', 4);
  assert.deepEqual([[...map.values()], removed], [[3, 4], []]);
});
