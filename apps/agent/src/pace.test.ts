import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeClock } from '@isthmus/runtime/testing';
import { Origin } from './origin.ts';
import { Pace } from './pace.ts';

const ORIGIN = { origin: new Origin({ host: 'origin', port: 1, first: 1, cap: 1, clock: new FakeClock() }) };

test('without a session an agent seeks at once, with one at a random time within two seconds', () => {
  const clock = new FakeClock();
  const waits = Array.from({ length: 1000 }, () => new Pace(clock).wait(1, true));
  assert.equal(new Pace(clock).wait(2, false), 0);
  assert.ok(waits.every((wait) => wait >= 0 && wait < 2000));
  for (const half of [waits.filter((wait) => wait < 1000), waits.filter((wait) => wait >= 1000)]) {
    assert.ok(half.length > 400, `${half.length} of 1000 in this second`);
  }
});

test('the time that was drawn stands until something changes', async () => {
  const clock = new FakeClock(20_000);
  const pace = new Pace(clock);
  const wait = pace.wait(1, true);
  await clock.run(100);
  assert.ok(Math.abs(pace.wait(1, true) - (wait - 100)) < 1e-6);
  pace.anew();
  assert.notEqual(pace.wait(1, true), wait - 100);
});

test('attempts that hang begin after 0, 1, 3 and 7 s, and there is no fifth', async () => {
  const clock = new FakeClock();
  const pace = new Pace(clock);
  const begun: number[] = [];
  for (let second = 0; second < 30; second++) {
    if (pace.wait(1, false) === 0) {
      pace.begin({ server: { address: 'hangs', port: second + 1 } }, false);
      begun.push(second);
    }
    await clock.run(1000);
  }
  assert.deepEqual(begun, [0, 1, 3, 7]);
  assert.equal(pace.engaged.length, 4, 'a hub that hangs is not asked twice');
});

test('as many attempts at once as sessions are missing', () => {
  const pace = new Pace(new FakeClock());
  for (const expected of [0, 0, 1000]) {
    assert.equal(pace.wait(2, false), expected);
    if (expected === 0) pace.begin(ORIGIN, false);
  }
});

test('behind a balancer that hangs the next attempt may lead elsewhere', async () => {
  const clock = new FakeClock();
  const pace = new Pace(clock);
  pace.begin(ORIGIN, false);
  assert.equal(pace.engaged.length, 1);
  await clock.run(1000);
  assert.equal(pace.engaged.length, 0);
});

test('a list of addresses that all fail is gone through fast, and then slowly', () => {
  const pace = new Pace(new FakeClock());
  const waits = Array.from({ length: 12 }, () => {
    const wait = pace.wait(1, false);
    const attempt = pace.begin(ORIGIN, false);
    pace.end(attempt);
    pace.failed(attempt);
    return wait;
  });
  assert.deepEqual(waits, [...Array(9).fill(0), 250, 250, 250]);
  assert.equal(pace.failures, 12);
  pace.afresh();
  assert.deepEqual([pace.failures, pace.wait(1, false)], [0, 0]);
});

test('an agent that has a session makes one attempt in fifteen seconds, and gives it time', async () => {
  const clock = new FakeClock();
  const pace = new Pace(clock);
  const begun: number[] = [];
  for (let second = 0; second < 40; second++) {
    if (pace.wait(1, true) === 0) {
      assert.equal(pace.begin({ server: { address: 'slow', port: second + 1 } }, true).timeout, 40_000);
      begun.push(second);
    }
    await clock.run(1000);
  }
  assert.equal(begun.length, 3);
  const [first = 0, second = 0, third = 0] = begun;
  assert.deepEqual([second - first, third - second], [15, 15]);
});

test('an agent that loses its last session meanwhile waits for none of the attempts that it was patient with', async () => {
  const clock = new FakeClock();
  const pace = new Pace(clock);
  for (let second = 0; second < 30; second++) {
    if (pace.wait(2, true) === 0) pace.begin({ server: { address: 'hangs', port: second + 1 } }, true);
    await clock.run(1000);
  }
  assert.equal(pace.pending.length, 4);
  assert.equal(pace.wait(2, false), 0);
  pace.begin({ server: { address: 'well', port: 1 } }, false);
  assert.equal(pace.wait(2, false), 0, 'as many at once as are missing');
  assert.equal(pace.engaged.length, 5, 'hubs that hang are not asked twice');
});

test('each attempt that takes too long gives the next one twice the time, up to a bound', async () => {
  const clock = new FakeClock();
  const pace = new Pace(clock);
  const timeouts: number[] = [];
  for (let tried = 0; tried < 4; tried++) {
    const attempt = pace.begin(ORIGIN, false);
    timeouts.push(attempt.timeout);
    await clock.run(attempt.timeout);
    pace.end(attempt);
    pace.failed(attempt);
  }
  assert.deepEqual(timeouts, [10_000, 20_000, 40_000, 40_000]);
  pace.afresh();
  assert.equal(pace.begin(ORIGIN, false).timeout, 10_000);
});
