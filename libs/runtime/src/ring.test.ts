import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Ring } from './ring.ts';

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
