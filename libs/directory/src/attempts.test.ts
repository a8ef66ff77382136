import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Dial, DialError } from '@isthmus/tunnel';
import { established, request, unobserved } from '@isthmus/tunnel/testing';
import { best, failing, plane, routing } from './testing/routing.ts';

test('without a session the dial fails with the words that operators of ANP know', async () => {
  await assert.rejects(routing(plane(), {})(request), {
    code: 'destination_unavailable',
    message: 'No agent available',
  });
});

test('a session that is lost before the answer is replaced by another', async () => {
  const tried: string[] = [];
  const lost = new DialError('connection_terminated', 'hub lost', { retryable: true });
  const answer = established();
  const dial = routing(plane('h1', 'h2'), { h1: failing(tried, 'h1', lost), h2: async () => answer });
  assert.equal(await dial(request), answer);
  assert.deepEqual(tried, ['h1']);
});

test('a hub without a link is skipped, however many sessions it has', async () => {
  const answer = established();
  const directory = plane(...Array.from({ length: 20 }, () => 'h1'), 'h2');
  const dial = routing(directory, { h1: undefined, h2: async () => answer });
  assert.equal(await dial(request), answer);
});

test('if no hub has a link, the error says so', async () => {
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

test('when every session fails, the last reason is returned, and each was tried once', async () => {
  const tried: string[] = [];
  const lost = new DialError('connection_terminated', 'hub lost', { retryable: true });
  const dial = routing(plane('h1', 'h2'), { h1: failing(tried, 'h1', lost), h2: failing(tried, 'h2', lost) });
  await assert.rejects(dial(request), lost);
  assert.deepEqual(tried.sort(), ['h1', 'h2']);
});

test('a hub that does not know a session outranks the copy of the registry', async () => {
  const directory = plane('h1');
  const gone = new DialError('destination_unavailable', 'no session', { retryable: true });
  await assert.rejects(routing(directory, { h1: failing([], 'h1', gone) })(request), {
    code: 'destination_unavailable',
    message: 'No agent available',
    cause: gone,
  });
  assert.equal(directory.size, 0);
});

test('a dial whose caller left makes no further attempt', async () => {
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

test('a dial or tunnel through a session makes it count as busier', async () => {
  const directory = plane('h1');
  const answer = established();
  await routing(directory, { h1: async () => answer })(request);
  const session = best(directory, 'x');
  assert.equal(session?.open, 1);
  answer.end.stream.destroy();
  await new Promise((resolve) => answer.end.stream.once('close', resolve));
  assert.equal(session?.open, 0);
});

test('the next dial skips an agent that is out of sockets, and gets its refusal if there is no other agent', async (t) => {
  t.mock.method(performance, 'now', () => 0);
  const tried: string[] = [];
  const full = new DialError('connection_limit_reached', 'socket: too many open files', { retryable: true });
  const dial = routing(plane('h1', 'h2'), { h1: failing(tried, 'h1', full), h2: async () => established() });
  for (let round = 0; round < 20; round++) await dial(request);
  assert.deepEqual(tried, ['h1']);
  await assert.rejects(routing(plane('h1'), { h1: failing(tried, 'h1', full) })(request), full);
});

test('retries have a budget: a plane that refuses everything is not hammered', async () => {
  const tried: string[] = [];
  const lost = new DialError('connection_terminated', 'hub lost', { retryable: true });
  const hubs = Array.from({ length: 10 }, (_, index) => `h${index}`);
  const dial = routing(plane(...hubs), Object.fromEntries(hubs.map((hub) => [hub, failing(tried, hub, lost)])));
  for (let round = 0; round < 1000; round++) await assert.rejects(dial(request), lost);
  assert.ok(tried.length <= 1000 * 1.2 + 2000, `${tried.length} attempts for 1000 dials`);
});

test('when a hub dies with the maximum of pending dials, each continues through another hub', async () => {
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

test('a dial without a retry left fails, though its hub may be back', async () => {
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
  // Some dials have earned one retry together; once it is spent there is none for the next.
  while ((await attempts()) === 1);
  hubs.h2 = undefined;
  hubs.h1 = () => {
    hubs.h1 = undefined;
    return Promise.reject(lost);
  };
  await assert.rejects(dial(request), { code: 'connection_terminated' });
});

test('a dial fails at once, and says so, if only agents in quarantine are left', async () => {
  const directory = plane('h1', 'h2');
  const quarantine = { tenant: 'default', agentId: 'a', version: 1, reason: 'its disk fails' };
  directory.apply({ kind: 'quarantine', quarantine });
  const dial = routing(directory, { h1: () => assert.fail('dialled'), h2: () => assert.fail('dialled') }, 60_000);
  await assert.rejects(dial(request), {
    code: 'destination_unavailable',
    message: 'No agent available: a is in quarantine',
  });
  const { reason: _, ...out } = { ...quarantine, version: 2 };
  directory.apply({ kind: 'quarantine', quarantine: out });
  await assert.rejects(routing(directory, {})(request), /hub h1 cannot be reached/);
});

test('tunnels and pending dials of an agent continue when it is put in quarantine', async () => {
  const directory = plane('h1');
  const answer = established();
  const hub: Dial = async () => {
    directory.apply({ kind: 'quarantine', quarantine: { tenant: 'default', agentId: 'a', version: 1, reason: '' } });
    return answer;
  };
  assert.equal(await routing(directory, { h1: hub })(request), answer);
  assert.equal(answer.end.stream.destroyed, false);
});

test('a dial through one agent ignores the strategies, uses no other agent, and does not wait if that agent is away', async () => {
  const directory = plane('h1', 'h2');
  for (const session of [...directory.sessions()]) {
    const agentId = session.hubId === 'h1' ? 'wanted' : 'other';
    directory.apply({ kind: 'session', session: { ...session, agentId, version: 2 } });
  }
  const answer = established();
  const dial = routing(directory, { h1: async () => answer, h2: () => assert.fail('dialled') }, 60_000);
  for (let round = 0; round < 10; round++) assert.equal(await dial({ ...request, agent: 'wanted' }), answer);
  await assert.rejects(dial({ ...request, agent: 'away' }), { message: 'No agent available' });
});

test('an exception in our own code during an attempt, first or retry, fails its dial and is reported', async () => {
  for (const defective of [1, 2]) {
    const { events, tracer } = unobserved();
    const faults: string[] = [];
    events.on('fault', (where, _remote, { message }) => faults.push(`${where}: ${message}`));
    const attempt: typeof tracer.attempt = (dial, told, number) => {
      if (number === defective) throw new Error('a defect');
      return tracer.attempt(dial, told, number);
    };
    const lost = new DialError('connection_terminated', 'hub lost', { retryable: true });
    const hubs = { h1: failing([], 'h1', lost), h2: failing([], 'h2', lost) };
    const dial = routing(plane('h1', 'h2'), hubs, 0, { events, tracer: { ...tracer, attempt } });
    await assert.rejects(dial(request), { code: 'proxy_internal_error' });
    assert.deepEqual(faults, ['routing: a defect']);
  }
});
