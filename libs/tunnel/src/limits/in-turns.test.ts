import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { setImmediate as answered } from 'node:timers/promises';
import type { Dial } from '../dial.ts';
import { established, request } from '../testing/index.ts';
import { inTurns } from './in-turns.ts';

/** Dials in ticks that the test runs, and the tenants of those that started. */
function ticks(startsATick: number) {
  const started: string[] = [];
  const due: (() => void)[] = [];
  const inner: Dial = async ({ tenant }) => {
    started.push(tenant);
    return established();
  };
  const dial = inTurns(inner, { startsATick, later: (next) => void due.push(next) });
  const of = (tenant: string) => dial({ ...request, tenant });
  return {
    started,
    of,
    flood: (tenant: string, count: number) => Array.from({ length: count }, () => of(tenant)),
    tick: () => due.shift()?.(),
    idle: () => due.length === 0,
  };
}

test('dials start at once while few come, and nothing is scheduled once none does', async () => {
  const { of, started, tick, idle } = ticks(3);
  await Promise.all([of('a'), of('b'), of('a')]);
  assert.deepEqual(started, ['a', 'b', 'a']);
  assert.equal(idle(), false);
  tick();
  assert.equal(idle(), true);
});

test('a dial of another tenant starts in the next tick, whatever a flood left waiting', async () => {
  const { of, flood, started, tick } = ticks(4);
  flood('a', 1000);
  assert.equal(started.length, 4);
  for (let i = 0; i < 20; i++) {
    void of('b');
    await answered();
    tick();
    assert.equal(started.filter((tenant) => tenant === 'b').length, i + 1, `after tick ${i}`);
    assert.equal(started.length, 4 * (i + 2), 'and each tick starts as many as it may');
  }
});

test('tenants that flood alike start alike, and all dials are answered', async () => {
  const { flood, started, tick, idle } = ticks(8);
  const names = ['a', 'b', 'c', 'd', 'e'];
  const answers = names.flatMap((name) => flood(name, 200));
  while (!idle()) {
    await answered();
    tick();
    const counts = names.map((name) => started.filter((tenant) => tenant === name).length);
    // The first tick's were all of the first.
    assert.ok(Math.max(...counts) - Math.min(...counts) <= 10 || started.length > 950, `${counts}`);
  }
  assert.equal((await Promise.all(answers)).length, 1000);
});

test('a dial that fails after it has waited rejects', async () => {
  const due: (() => void)[] = [];
  const inner: Dial = () => Promise.reject(new Error('refused'));
  const dial = inTurns(inner, { startsATick: 1, later: (next) => void due.push(next) });
  await assert.rejects(dial(request), /refused/);
  const waited = assert.rejects(dial(request), /refused/);
  for (const next of due.splice(0)) next();
  await waited;
});

test('a tenant has 32 dials under way, and those that take longer than 100 ms make room for others', async () => {
  mock.timers.enable({ apis: ['setInterval'] });
  try {
    let under = 0;
    const answers: (() => void)[] = [];
    const inner: Dial = () => {
      under++;
      return new Promise((resolve) => answers.push(() => resolve(established())));
    };
    const dial = inTurns(inner);
    const ticks = async () => {
      for (let i = 0; i < 20; i++) await answered();
    };
    const flood = Array.from({ length: 100 }, () => dial({ ...request, tenant: 'a' }));
    await ticks();
    assert.equal(under, 32);
    const other = dial({ ...request, tenant: 'b' });
    assert.equal(under, 33, 'others have places of their own');
    for (const answer of answers.splice(0, 10)) answer();
    await ticks();
    assert.equal(under, 43, 'each answer makes room');
    mock.timers.tick(100);
    await ticks();
    assert.equal(under, 75, 'and so does time');
    // Late answers of the old ones free nothing twice.
    for (const answer of answers.splice(0, 23)) answer();
    await ticks();
    assert.equal(under, 75);
    mock.timers.tick(100);
    await ticks();
    assert.equal(under, 101);
    for (const answer of answers) answer();
    await Promise.all([...flood, other]);
  } finally {
    mock.timers.reset();
  }
});

test('a tenant has one line while any of its dials runs, so that it takes one turn', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const ends: (() => void)[] = [];
  const dial = inTurns(() => new Promise((resolve) => ends.push(() => resolve(established()))), {
    startsATick: 1000,
    later: queueMicrotask,
  });
  const flood = (count: number) => {
    for (let i = 0; i < count; i++) void dial({ ...request, tenant: 'a' });
    return answered();
  };
  await flood(33);
  t.mock.timers.tick(100);
  await answered();
  assert.equal(ends.length, 33, 'those that take long give their places to others');
  const end = async (at: number) => {
    ends[at]?.();
    await answered();
  };
  // The only young one ends, then an old one.
  await end(32);
  await flood(40);
  const started = ends.length;
  await end(0);
  await flood(40);
  assert.equal(ends.length, started, 'as many are young as may be');
});
