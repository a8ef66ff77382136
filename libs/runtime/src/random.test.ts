import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RandomSet } from './collections.ts';

test('a random set holds each member once, and keeps the others when one is deleted', () => {
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

test('a random set holds as it should, small or large', () => {
  const members = Array.from({ length: 100 }, () => ({}));
  const set = new RandomSet<object>();
  for (let round = 0; round < 2; round++) {
    for (const [index, member] of members.entries()) {
      set.add(member);
      set.add(member);
      assert.deepEqual([set.size, set.has(member)], [index + 1, true]);
    }
    for (const [index, member] of members.entries()) {
      assert.equal(set.delete(member), true);
      assert.deepEqual([set.size, set.has(member), set.delete(member)], [members.length - index - 1, false, false]);
      assert.deepEqual(new Set(set), new Set(members.slice(index + 1)));
    }
  }
});

test('members may be deleted while a random set is iterated', () => {
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

test('a random set draws each eligible member, and no other', () => {
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
