import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RandomSet } from './random-set.ts';

test('a set holds each member once, and keeps the others when one is deleted', () => {
  const [a, b, c] = [{}, {}, {}];
  const set = new RandomSet<object>();
  for (const member of [a, b, c, b]) set.add(member);
  assert.equal(set.size, 3);
  assert.equal(set.delete(a), true);
  assert.equal(set.delete(a), false);
  assert.equal(set.has(a), false);
  assert.deepEqual(new Set(set), new Set([b, c]));
  assert.equal(set.delete(c) && set.delete(b), true);
  assert.equal(set.size, 0);
});

test('members may be deleted while a set is iterated', () => {
  const set = new RandomSet<object>();
  for (let i = 0; i < 5; i++) set.add({});
  let seen = 0;
  for (const member of set) {
    set.delete(member);
    seen++;
  }
  assert.equal(seen, 5);
  set.add({});
  set.clear();
  assert.equal(set.size, 0);
});

test('a set draws each eligible member, and no other', () => {
  const members = Array.from({ length: 8 }, (_, place) => ({ place }));
  const set = new RandomSet<{ place: number }>();
  assert.equal(
    set.draw(Math.random, () => true),
    undefined,
  );
  for (const member of members) set.add(member);
  for (const { place } of members)
    assert.equal(
      set.draw(
        () => place / 8,
        () => true,
      )?.place,
      place,
    );
  for (const only of members)
    assert.equal(
      set.draw(Math.random, (member) => member === only),
      only,
    );
  assert.equal(
    set.draw(Math.random, () => false),
    undefined,
  );
});
