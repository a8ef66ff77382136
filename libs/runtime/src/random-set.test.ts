import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RandomSet } from './random-set.ts';

test('a random set holds each member once, and keeps the others when one is deleted', () => {
  const [a, b, c] = [{}, {}, {}];
  const crowd = new RandomSet<object>();
  for (const member of [a, b, c, b]) crowd.add(member);
  assert.equal(crowd.size, 3);
  assert.equal(crowd.delete(a), true);
  assert.equal(crowd.delete(a), false);
  assert.equal(crowd.has(a), false);
  assert.deepEqual(new Set(crowd), new Set([b, c]));
  assert.equal(crowd.delete(c) && crowd.delete(b), true);
  assert.equal(crowd.size, 0);
});

test('members may be deleted while a random set is iterated', () => {
  const crowd = new RandomSet<object>();
  for (let i = 0; i < 5; i++) crowd.add({});
  let seen = 0;
  for (const member of crowd) {
    crowd.delete(member);
    seen++;
  }
  assert.equal(seen, 5);
  crowd.add({});
  crowd.clear();
  assert.equal(crowd.size, 0);
});

test('a random set draws each eligible member, and no other', () => {
  const members = Array.from({ length: 8 }, (_, place) => ({ place }));
  const crowd = new RandomSet<{ place: number }>();
  assert.equal(
    crowd.draw(Math.random, () => true),
    undefined,
  );
  for (const member of members) crowd.add(member);
  for (const { place } of members)
    assert.equal(
      crowd.draw(
        () => place / 8,
        () => true,
      )?.place,
      place,
    );
  for (const only of members)
    assert.equal(
      crowd.draw(Math.random, (member) => member === only),
      only,
    );
  assert.equal(
    crowd.draw(Math.random, () => false),
    undefined,
  );
});
