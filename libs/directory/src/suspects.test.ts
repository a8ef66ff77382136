import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Suspects } from './suspects.ts';

test('a suspect is avoided for a second, unless it answers', () => {
  let now = 0;
  const suspects = new Suspects(() => now);
  suspects.accuse('t', 'a', 'b');
  suspects.clear('b');
  assert.deepEqual([suspects.has('a', 't'), suspects.has('b', 't')], [true, false]);
  now = 1000;
  assert.equal(suspects.has('a', 't'), false);
});

test('expired suspects are forgotten even if nobody asks about them', () => {
  let now = 0;
  const suspects = new Suspects(() => now);
  for (let round = 0; round < 100_000; round++) {
    now += 10;
    suspects.accuse(`tenant ${round}`, `session ${round}`);
    assert.ok(suspects.size <= 1001, `${suspects.size} suspects`);
  }
});

test("one tenant's silent agents make its own dials avoid a hub, those of two tenants make all dials avoid it", () => {
  let now = 0;
  const suspects = new Suspects(() => now);
  const seen = () => ['one', 'two', 'three'].map((tenant) => suspects.has('hub', tenant));
  suspects.accuse('one', 'hub');
  suspects.accuse('one', 'hub');
  assert.deepEqual(seen(), [true, false, false]);
  now = 500;
  suspects.accuse('two', 'hub');
  assert.deepEqual(seen(), [true, true, true]);
  now = 1000;
  assert.deepEqual(seen(), [false, true, false]);
  suspects.clear('hub');
  assert.deepEqual(seen(), [false, false, false]);
});

test('a hub that sessions of ever other tenants accuse is remembered for the latest', () => {
  let now = 0;
  const suspects = new Suspects(() => now);
  for (let round = 0; round < 100_000; round++) {
    now += 10;
    suspects.accuse(`tenant ${round}`, 'hub');
  }
  assert.equal(suspects.has('hub', 'another'), true);
  now += 995;
  assert.deepEqual([suspects.has('hub', 'another'), suspects.has('hub', 'tenant 99999')], [false, true]);
});
