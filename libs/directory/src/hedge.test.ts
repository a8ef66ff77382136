import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Dial, DialError, type DialRequest, type Established } from '@isthmus/tunnel';
import { established, request, unobserved } from '@isthmus/tunnel/testing';
import { routed } from './attempts.ts';
import { directory, failing, hub, plane, routing, session, silent } from './testing/routing.ts';

test('a dial that is not acknowledged within 300 ms also goes through another session, and the loser is aborted', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const seen: DialRequest[] = [];
  const answer = established();
  const dialled = routing(plane('h1', 'h2'), { h1: silent(seen), h2: async () => answer })(request);
  await new Promise(setImmediate);
  t.mock.timers.tick(299);
  assert.deepEqual([seen.length, seen[0]?.signal.aborted], [1, false]);
  t.mock.timers.tick(1);
  assert.equal(await dialled, answer);
  assert.equal(seen[0]?.signal.aborted, true);
  t.mock.timers.reset();
});

test('the next dial skips a silent hub', async (t) => {
  t.mock.method(performance, 'now', () => 0);
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const seen: DialRequest[] = [];
  const dial = routing(plane('h1', 'h2'), { h1: silent(seen), h2: async () => established() });
  const first = dial(request);
  await new Promise(setImmediate);
  t.mock.timers.tick(300);
  await first;
  for (let round = 0; round < 20; round++) await dial(request);
  assert.equal(seen.length, 1);
  t.mock.timers.reset();
});

test('a silent session at the hub of this process becomes a suspect, that hub does not', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const hubs = [hub('own'), hub('other')];
  const sessions = [session('a', { hubId: 'own' }), session('b', { hubId: 'own' }), session('c', { hubId: 'other' })];
  const dialled: string[] = [];
  const own: Dial = async ({ session = '' }) => {
    dialled.push(session);
    return session === 'a' ? new Promise(() => {}) : established();
  };
  const dial = routing(directory(hubs, sessions, 'own'), { own, other: async () => assert.fail('the other hub') });
  const dials = Array.from({ length: 20 }, () => dial(request));
  await new Promise(setImmediate);
  t.mock.timers.tick(300);
  await Promise.all(dials);
  assert.ok(dialled.includes('a') && dialled.includes('b'));
  t.mock.timers.reset();
});

test('an acknowledged dial is left alone, however long its destination takes', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const others: DialRequest[] = [];
  let answer: (value: Established) => void = () => {};
  const slow: Dial = ({ acknowledged }) => {
    acknowledged?.();
    return new Promise((resolve) => {
      answer = resolve;
    });
  };
  const dialled = routing(plane('h1', 'h2'), { h1: slow, h2: silent(others) })(request);
  await new Promise(setImmediate);
  t.mock.timers.tick(4000);
  assert.equal(others.length, 0);
  const late = established();
  answer(late);
  assert.equal(await dialled, late);
  t.mock.timers.reset();
});

test('a dial that is acknowledged and not answered within 7 s also goes through another session of the same hub or another', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const dialled: string[] = [];
  const hung: DialRequest[] = [];
  const h1: Dial = async (request) => {
    dialled.push(request.session ?? '');
    if (request.session !== 'hung') return established();
    hung.push(request);
    request.acknowledged?.();
    return new Promise(() => {});
  };
  const places = directory([hub('h1')], [session('hung', { hubId: 'h1' }), session('well', { hubId: 'h1' })]);
  const dial = routing(places, { h1 });
  // Whichever session is drawn first: the hung one counts the dials that wait for it, and so is soon avoided.
  const dials = Array.from({ length: 10 }, () => dial(request));
  await new Promise(setImmediate);
  t.mock.timers.tick(6_999);
  await new Promise(setImmediate);
  const first = [...dialled];
  assert.ok(hung.length > 0 && first.length === 10, first.join());
  t.mock.timers.tick(1);
  await Promise.all(dials);
  assert.equal(dialled.length, 10 + hung.length);
  assert.ok(dialled.slice(10).every((session) => session === 'well'));
  assert.ok(hung.every(({ signal }) => signal.aborted));
  t.mock.timers.reset();
});

test('the first of two answers counts, and the second tunnel is closed unused', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const [winner, loser] = [established(), established()];
  let answer: (value: Established) => void = () => {};
  const slow: Dial = () =>
    new Promise((resolve) => {
      answer = resolve;
    });
  const dialled = routing(plane('h1', 'h2'), { h1: slow, h2: async () => winner })(request);
  await new Promise(setImmediate);
  t.mock.timers.tick(300);
  assert.equal(await dialled, winner);
  answer(loser);
  await new Promise((resolve) => loser.end.stream.once('close', resolve));
  assert.equal(winner.end.stream.destroyed, false);
  t.mock.timers.reset();
});

test("one attempt's final answer ends the others", async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const seen: DialRequest[] = [];
  const refused = new DialError('connection_refused', 'dial tcp x:1: connect: connection refused');
  const dialled = routing(plane('h1', 'h2'), { h1: silent(seen), h2: failing([], 'h2', refused) })(request);
  const rejected = assert.rejects(dialled, refused);
  await new Promise(setImmediate);
  t.mock.timers.tick(300);
  await rejected;
  assert.equal(seen[0]?.signal.aborted, true);
  t.mock.timers.reset();
});

test('a hedge that finds no other session costs no retry', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const directory = plane('h1', 'h2');
  const hubs: Record<string, Dial | undefined> = { h1: silent([]), h2: undefined };
  const dial = routing(directory, hubs);
  for (let round = 0; round < 200; round++) void dial(request);
  await new Promise(setImmediate);
  t.mock.timers.tick(300);
  const answer = established();
  const lost = new DialError('connection_terminated', 'link lost', { retryable: true });
  hubs.h1 = failing([], 'h1', lost);
  hubs.h2 = async () => answer;
  t.mock.timers.reset();
  for (let round = 0; round < 20; round++) assert.equal(await dial(request), answer);
});

test('a dial waits longer for an agent behind a long path, as the links on the way say', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const seen: DialRequest[] = [];
  const answer = established();
  const far = silent(seen);
  const dialled = routing(plane('h1', 'h2'), {
    async h1(dial) {
      // The gateway's link to the hub; half a round trip later, the hub says how far the agent is.
      dial.underWay?.(20);
      setTimeout(() => dial.underWay?.(360), 10);
      return far(dial);
    },
    h2: async () => answer,
  })(request);
  await new Promise(setImmediate);
  t.mock.timers.tick(10);
  t.mock.timers.tick(300 + 2 * 360 - 1);
  assert.equal(seen[0]?.signal.aborted, false);
  t.mock.timers.tick(1);
  assert.equal(await dialled, answer);
  seen[0]?.underWay?.(0);
  t.mock.timers.reset();
});

test('a link that says nothing of the agent behind its hub costs a silent dial no time', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const answer = established();
  const dialled = routing(plane('h1', 'h2'), {
    h1(dial) {
      dial.underWay?.(0.3);
      return new Promise(() => {});
    },
    h2: async () => answer,
  })(request);
  await new Promise(setImmediate);
  t.mock.timers.tick(301);
  assert.equal(await dialled, answer);
  t.mock.timers.reset();
});

test('hedges leave all retries to dials whose attempts fail', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const hubs: Record<string, Dial> = { h1: silent([]), h2: silent([]) };
  const dial = routing(plane('h1', 'h2'), hubs);
  for (let round = 0; round < 3000; round++) {
    void dial(request);
    if (round % 100 === 0) await new Promise(setImmediate);
  }
  await new Promise(setImmediate);
  t.mock.timers.tick(300);
  const answer = established();
  hubs.h1 = failing([], 'h1', new DialError('connection_terminated', 'link lost', { retryable: true }));
  hubs.h2 = async () => answer;
  t.mock.timers.reset();
  for (let round = 0; round < 1000; round++) assert.equal(await dial(request), answer);
});

test("one tenant's silent agent does not move other tenants' dials to another hub, silent agents of two tenants do", async (t) => {
  t.mock.method(performance, 'now', () => 0);
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const hubs = [hub('near', { zone: 'z', peerAddress: 'p' }), hub('far', { peerAddress: 'p' })];
  const tenants = ['one', 'two', 'three'];
  const sessions = tenants.flatMap((tenant) => [
    session(`${tenant} near`, { tenant, hubId: 'near' }),
    session(`${tenant} far`, { tenant, hubId: 'far' }),
  ]);
  const dialled: string[] = [];
  const hung = new Set(['one near', 'two near']);
  const through: Dial = async ({ session = '' }) => {
    dialled.push(session);
    return hung.has(session) ? new Promise(() => {}) : established();
  };
  const observation = unobserved();
  const dial = routed({
    directory: directory(hubs, sessions),
    strategies: ['default'],
    zone: 'z',
    hub: () => through,
    parkTimeout: 0,
    observation,
  });
  const dials = async (tenant: string) => {
    dialled.length = 0;
    const asked = dial({ ...request, tenant });
    await new Promise(setImmediate);
    t.mock.timers.tick(300);
    await asked;
    return [...dialled];
  };
  assert.deepEqual(await dials('one'), ['one near', 'one far']);
  assert.deepEqual(await dials('two'), ['two near', 'two far']);
  assert.deepEqual(await dials('three'), ['three far']);
  t.mock.timers.reset();
});
