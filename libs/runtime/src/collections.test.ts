import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Grouped, LruMap, OpenTable, Queue, Ring } from './collections.ts';

test('the entry used longest ago makes room for another', () => {
  const map = new LruMap<string, number>(2);
  map.set('a', 1).set('b', 2);
  assert.equal(map.get('a'), 1);
  map.set('c', 3);
  assert.deepEqual(
    [...map],
    [
      ['a', 1],
      ['c', 3],
    ],
  );
  assert.equal(map.get('b'), undefined);
});

test('an entry that is written again counts once, and one that is deleted makes room', () => {
  const map = new LruMap<string, number>(2);
  map.set('a', 1).set('b', 2).set('a', 3);
  assert.deepEqual([...map.values()], [2, 3]);
  map.delete('b');
  map.set('c', 4);
  assert.deepEqual([...map.values()], [3, 4]);
});

test('a queue gives its items in order, however many come and go', () => {
  const queue = new Queue<number>();
  const taken: (number | undefined)[] = [];
  let next = 0;
  for (let round = 0; round < 100; round++) {
    for (let n = round % 7; n >= 0; n--) queue.push(next++);
    for (let n = round % 5; n >= 0; n--) taken.push(queue.shift());
  }
  queue.filter((item) => item % 2 === 0);
  const left = Array.from({ length: queue.size }, () => queue.shift());
  const items = taken.filter((item) => item !== undefined);
  assert.deepEqual(
    items,
    items.map((_, at) => at),
  );
  assert.deepEqual(
    left,
    Array.from({ length: next }, (_, at) => at).filter((at) => at >= items.length && at % 2 === 0),
  );
  assert.deepEqual([queue.size, queue.first, queue.shift()], [0, undefined, undefined]);
});

test('a ring returns its items, oldest first', () => {
  const ring = new Ring<number>(3);
  assert.deepEqual([...ring], []);
  ring.push(1);
  ring.push(2);
  assert.deepEqual([[...ring], ring.size, ring.forgotten], [[1, 2], 2, 0]);
});

test('a full ring forgets the oldest, and counts what it forgot', () => {
  const ring = new Ring<number>(3);
  for (let item = 1; item <= 8; item++) ring.push(item);
  assert.deepEqual([[...ring], ring.size, ring.forgotten], [[6, 7, 8], 3, 5]);
});

test('iterating a ring that fills meanwhile returns nothing twice and nothing new', () => {
  const ring = new Ring<number>(3);
  for (const item of [1, 2, 3]) ring.push(item);
  const seen: number[] = [];
  for (const item of ring) {
    seen.push(item);
    ring.push(item + 10);
    if (item === 1) ring.push(20);
  }
  assert.deepEqual(seen, [1, 3]);
});

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

test('the group that has the most is known, however items come and go', () => {
  const items = new Grouped<number>();
  const groupOf = (item: number) => `group ${(item * item) % 11}`;
  const kept = new Set<number>();
  for (let i = 0; i < 2000; i++) {
    const item = (i * 7919) % 101;
    if (kept.delete(item)) items.delete(groupOf(item), item);
    else {
      kept.add(item);
      items.add(groupOf(item), item);
    }
    const counts = new Map<string, number>();
    for (const each of kept) counts.set(groupOf(each), (counts.get(groupOf(each)) ?? 0) + 1);
    assert.equal(items.most?.size, kept.size === 0 ? undefined : Math.max(...counts.values()));
    assert.deepEqual([...items.all], [...kept]);
  }
});

test('an item that comes twice counts once', () => {
  const items = new Grouped<string>();
  items.add('a', 'one');
  items.add('a', 'one');
  assert.deepEqual([items.size, items.most?.size], [1, 1]);
  items.delete('a', 'one');
  assert.deepEqual([items.size, items.most, items.of('a')], [0, undefined, undefined]);
});
