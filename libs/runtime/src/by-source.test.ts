import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BySource } from './by-source.ts';

test('it knows the source that has the most, however items come and go', () => {
  const items = new BySource<number>();
  const sourceOf = (item: number) => `source ${(item * item) % 11}`;
  const kept = new Set<number>();
  for (let i = 0; i < 2000; i++) {
    const item = (i * 7919) % 101;
    if (kept.delete(item)) items.delete(sourceOf(item), item);
    else {
      kept.add(item);
      items.add(sourceOf(item), item);
    }
    const counts = new Map<string, number>();
    for (const each of kept) counts.set(sourceOf(each), (counts.get(sourceOf(each)) ?? 0) + 1);
    assert.equal(items.most?.size, kept.size === 0 ? undefined : Math.max(...counts.values()));
    assert.deepEqual([...items.all], [...kept]);
  }
});

test('an item that comes twice counts once', () => {
  const items = new BySource<string>();
  items.add('a', 'one');
  items.add('a', 'one');
  assert.deepEqual([items.size, items.most?.size], [1, 1]);
  items.delete('a', 'one');
  assert.deepEqual([items.size, items.most, items.of('a')], [0, undefined, undefined]);
});
