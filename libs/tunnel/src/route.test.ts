import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import type { Dial, DialRequest, Established } from './dial.ts';
import { Directory } from './directory.ts';
import { DialError } from './errors.ts';
import { routed } from './route.ts';

const request: DialRequest = {
  id: '00000000000000aa',
  tenant: 'default',
  destination: { host: 'x', port: 1 },
  deadline: 1e12,
  signal: new AbortController().signal,
};

/** One session on each hub, called as the hub is; on a hub that is named again, another. */
function plane(...hubIds: string[]): Directory {
  const directory = new Directory(() => 0);
  for (const [index, hubId] of hubIds.entries()) {
    const hub = { hubId, incarnation: 1, peerAddress: 'p', agentAddress: '', zone: '', draining: false };
    const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };
    directory.apply({ kind: 'hub', hub });
    directory.apply({
      kind: 'session',
      session: {
        ...{ sessionId: `${index} on ${hubId}`, tenant: 'default', agentId: 'a', identifiers, hubId },
        ...{ incarnation: 1, version: 1, draining: false, since: 0 },
      },
    });
  }
  return directory;
}

/** What the registry tells of a hub and its session. */
function join(directory: Directory, hubId: string): void {
  const joined = plane(hubId);
  for (const hub of joined.hubs()) directory.apply({ kind: 'hub', hub });
  for (const session of joined.sessions()) directory.apply({ kind: 'session', session });
}

function established(): Established {
  const stream = new PassThrough();
  return {
    end: { stream, halfOpen: true, abort: () => void stream.destroy() },
    ...{ agentId: 'a', sessionId: 's', hubId: 'h', timing: {} },
  };
}

function routing(directory: Directory, dials: Record<string, Dial | undefined>, parkTimeout = 0): Dial {
  return routed({ directory, strategies: ['default'], zone: '', parkTimeout, hub: (hubId) => dials[hubId] });
}

const failing =
  (tried: string[], name: string, error: DialError): Dial =>
  () => {
    tried.push(name);
    return Promise.reject(error);
  };

test('without a session the dial fails in words that operators of ANP know', async () => {
  await assert.rejects(routing(plane(), {})(request), {
    code: 'destination_unavailable',
    message: 'No agent available',
  });
});

test('a session that was lost before the answer is replaced by another', async () => {
  const tried: string[] = [];
  const lost = new DialError('connection_terminated', 'hub lost', { retryable: true });
  const answer = established();
  const dial = routing(plane('h1', 'h2'), { h1: failing(tried, 'h1', lost), h2: async () => answer });
  assert.equal(await dial(request), answer);
  assert.deepEqual(tried, ['h1']);
});

test('a hub without a link is passed over, however many sessions it has', async () => {
  const answer = established();
  const directory = plane(...Array.from({ length: 20 }, () => 'h1'), 'h2');
  const dial = routing(directory, { h1: undefined, h2: async () => answer });
  assert.equal(await dial(request), answer);
});

test('where no hub has a link, the dial says so', async () => {
  await assert.rejects(routing(plane('h1'), {})(request), {
    code: 'connection_terminated',
    message: 'hub h1 cannot be reached',
  });
});

test("the destination's own answer is final", async () => {
  const tried: string[] = [];
  const refused = new DialError('connection_refused', 'dial tcp x:1: connect: connection refused');
  const dial = routing(plane('h1', 'h2'), { h1: failing(tried, 'h1', refused), h2: failing(tried, 'h2', refused) });
  await assert.rejects(dial(request), refused);
  assert.deepEqual(tried, ['h1']);
});

test('when every session fails the last reason is given, and each was tried once', async () => {
  const tried: string[] = [];
  const lost = new DialError('connection_terminated', 'hub lost', { retryable: true });
  const dial = routing(plane('h1', 'h2'), { h1: failing(tried, 'h1', lost), h2: failing(tried, 'h2', lost) });
  await assert.rejects(dial(request), lost);
  assert.deepEqual(tried.sort(), ['h1', 'h2']);
});

test("a hub's word that it has no such session outranks the copy", async () => {
  const directory = plane('h1');
  const gone = new DialError('destination_unavailable', 'no session', { retryable: true });
  await assert.rejects(routing(directory, { h1: failing([], 'h1', gone) })(request), {
    code: 'destination_unavailable',
    message: 'No agent available',
    cause: gone,
  });
  assert.equal(directory.size, 0);
});

test('nothing is tried any more for a caller that went away', async () => {
  const caller = new AbortController();
  const tried: string[] = [];
  const lost = new DialError('connection_terminated', 'hub lost', { retryable: true });
  const leaving: Dial = (dial) => {
    caller.abort();
    return failing(tried, 'h1', lost)(dial);
  };
  const dial = routing(plane('h1', 'h2'), { h1: leaving, h2: failing(tried, 'h2', lost) });
  await assert.rejects(dial({ ...request, signal: caller.signal }), lost);
  assert.deepEqual(tried, ['h1']);
});

test('a session counts as busier while a dial or a tunnel runs through it', async () => {
  const directory = plane('h1');
  const answer = established();
  await routing(directory, { h1: async () => answer })(request);
  const route = directory.choose({
    tenant: 'default',
    host: 'x',
    strategies: ['default'],
    zone: '',
    excluded: new Set(),
  });
  assert.equal(route?.open, 1);
  answer.end.stream.destroy();
  await new Promise((resolve) => answer.end.stream.once('close', resolve));
  assert.equal(route?.open, 0);
});

/** A hub that hangs; `seen` gets what was asked of it. */
const silent =
  (seen: DialRequest[]): Dial =>
  (dial) => {
    seen.push(dial);
    return new Promise(() => {});
  };

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

test('a silent hub is passed over by the next dial', async (t) => {
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

test('an agent without a socket left is passed over by the next dial, and its own refusal is given where there is no other', async () => {
  const tried: string[] = [];
  const full = new DialError('connection_limit_reached', 'socket: too many open files', { retryable: true });
  const dial = routing(plane('h1', 'h2'), { h1: failing(tried, 'h1', full), h2: async () => established() });
  for (let round = 0; round < 20; round++) await dial(request);
  assert.deepEqual(tried, ['h1']);
  await assert.rejects(routing(plane('h1'), { h1: failing(tried, 'h1', full) })(request), full);
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

test('of two answers the first counts, and the second tunnel is closed unused', async (t) => {
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

test('retries have a budget: a plane that refuses everything is not hammered', async () => {
  const tried: string[] = [];
  const lost = new DialError('connection_terminated', 'hub lost', { retryable: true });
  const hubs = Array.from({ length: 10 }, (_, index) => `h${index}`);
  const dial = routing(plane(...hubs), Object.fromEntries(hubs.map((hub) => [hub, failing(tried, hub, lost)])));
  for (let round = 0; round < 1000; round++) await assert.rejects(dial(request), lost);
  assert.ok(tried.length <= 1000 * 1.2 + 2000, `${tried.length} attempts for 1000 dials`);
});

test('when a hub dies with as many dials as may be pending, each goes on through another', async () => {
  const lost = new DialError('connection_terminated', 'hub lost', { retryable: true });
  const die: (() => void)[] = [];
  const hubs: Record<string, Dial | undefined> = {
    h1: (dial) =>
      new Promise((_, reject) => {
        dial.acknowledged?.();
        die.push(() => reject(lost));
      }),
    h2: undefined,
  };
  const dial = routing(plane('h1', 'h2'), hubs, 2000);
  const dials = Array.from({ length: 2000 }, () => dial(request));
  assert.equal(die.length, 2000);
  hubs.h1 = undefined;
  hubs.h2 = async () => established();
  for (const reject of die) reject();
  assert.equal((await Promise.all(dials)).length, 2000);
});

test('a dial that has no retry left fails, though its hub may be back', async () => {
  const tried: string[] = [];
  const lost = new DialError('connection_terminated', 'hub lost', { retryable: true });
  const hubs: Record<string, Dial | undefined> = { h1: failing(tried, 'h1', lost), h2: failing(tried, 'h2', lost) };
  const dial = routing(plane('h1', 'h2'), hubs, 60_000);
  const attempts = async () => {
    const before = tried.length;
    await assert.rejects(dial(request), lost);
    return tried.length - before;
  };
  while ((await attempts()) > 1);
  // Some dials have earned one retry together; when it is spent there is none for the next.
  while ((await attempts()) === 1);
  hubs.h2 = undefined;
  hubs.h1 = () => {
    hubs.h1 = undefined;
    return Promise.reject(lost);
  };
  await assert.rejects(dial(request), { code: 'connection_terminated' });
});

test('a parked dial is not woken by a session behind a hub that is out of reach', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const directory = plane();
  const asked: string[] = [];
  const answer = established();
  const ways: Record<string, Dial> = {};
  const dial = routed({
    ...{ directory, strategies: ['default'], zone: '', parkTimeout: 2000 },
    hub(hubId) {
      asked.push(hubId);
      return ways[hubId];
    },
  });
  const dialled = dial(request);
  join(directory, 'h1');
  await new Promise(setImmediate);
  assert.deepEqual(asked, ['h1'], 'it looked for a session to try');
  ways.h1 = async () => answer;
  directory.reachable('h1');
  t.mock.timers.reset();
  assert.equal(await dialled, answer);
});

test('a dial of a tenant without a session waits for one', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const directory = plane();
  const answer = established();
  const dialled = routing(directory, { h1: async () => answer }, 2000)(request);
  t.mock.timers.tick(1999);
  join(directory, 'h1');
  assert.equal(await dialled, answer);
  t.mock.timers.reset();
});

test('a parked dial fails as without an agent when its time is over, and ends with its caller', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const dial = routing(plane(), {}, 2000);
  const late = assert.rejects(dial(request), { code: 'destination_unavailable', message: 'No agent available' });
  t.mock.timers.tick(2000);
  await late;
  const caller = new AbortController();
  const abandoned = assert.rejects(dial({ ...request, signal: caller.signal }), { code: 'destination_unavailable' });
  caller.abort();
  await abandoned;
  t.mock.timers.reset();
});

test('a dial whose only session has gone already goes on through the next that comes', async () => {
  const gone = new DialError('destination_unavailable', 'no session', { retryable: true });
  const directory = plane('h1');
  const answer = established();
  const hubs: Record<string, Dial> = {
    h1: () => {
      // What the agent's next session brings, once the dial waits for it.
      setImmediate(() => {
        hubs.h2 = async () => answer;
        join(directory, 'h2');
      });
      return Promise.reject(gone);
    },
  };
  assert.equal(await routing(directory, hubs, 2000)(request), answer);
});

test('a dial whose only agent dies over it fails at once', async () => {
  const lost = new DialError('connection_terminated', 'agent lost', { retryable: true });
  await assert.rejects(routing(plane('h1'), { h1: failing([], 'h1', lost) }, 60_000)(request), lost);
});

test('a dial whose only hub lost its link goes on when the hub can be reached again', async () => {
  const tried: string[] = [];
  const lost = new DialError('connection_terminated', 'link lost', { retryable: true });
  const directory = plane('h1');
  const answer = established();
  const hubs: Record<string, Dial | undefined> = {
    h1: (dial) => {
      hubs.h1 = undefined;
      return failing(tried, 'h1', lost)(dial);
    },
  };
  const dialled = routing(directory, hubs, 2000)(request);
  const other = routing(directory, hubs, 2000)(request);
  await new Promise(setImmediate);
  hubs.h1 = async () => answer;
  directory.reachable('h1');
  assert.deepEqual(await Promise.all([dialled, other]), [answer, answer]);
  assert.deepEqual(tried, ['h1']);
});

test('a parked dial waits for an agent that serves its destination, not for just any', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const directory = plane();
  const dial = routed({
    ...{ directory, strategies: ['destHost'], zone: '', parkTimeout: 2000 },
    hub: () => async () => established(),
  });
  const rejected = assert.rejects(dial(request), { message: 'No agent available' });
  let settled = false;
  void rejected.then(() => {
    settled = true;
  });
  join(directory, 'h1');
  await new Promise(setImmediate);
  await new Promise(setImmediate);
  assert.equal(settled, false);
  t.mock.timers.tick(2000);
  await rejected;
  t.mock.timers.reset();
});

test('a destination that none of the agents serves fails at once', async () => {
  const directory = plane('h1');
  const dial = routed({
    ...{ directory, strategies: ['destHost'], zone: '', parkTimeout: 60_000 },
    hub: () => async () => established(),
  });
  await assert.rejects(dial(request), { message: 'No agent available' });
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
