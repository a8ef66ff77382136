import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadlines, type Dial, DialError, type DialRequest, type Established } from '@isthmus/tunnel';
import { established, request, streamOf, unobserved } from '@isthmus/tunnel/testing';
import { RetryBudget, routed } from './attempts.ts';
import {
  best,
  directory,
  failing,
  hop,
  hub,
  join,
  plane,
  routing,
  session,
  silent,
  stoppedTime,
} from './testing/routing.ts';

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
  streamOf(answer.end).destroy();
  await new Promise((resolve) => streamOf(answer.end).once('close', resolve));
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

/** Each of these agents has a session on h1 and one on h2. */
function onBothHubs(agents: number) {
  const names = Array.from({ length: agents }, (_, index) => `a${index}`);
  const sessions = names.flatMap((agentId) =>
    ['h1', 'h2'].map((hubId) => session(`${agentId} on ${hubId}`, { agentId, hubId })),
  );
  return { names, directory: directory([hub('h1'), hub('h2')], sessions) };
}

test('dials to all agents skip a hub that refuses one itself, so it uses up no retries', async (t) => {
  t.mock.method(performance, 'now', () => 0);
  const { names, directory } = onBothHubs(1_000);
  const tried: string[] = [];
  const scarce = new DialError('connection_limit_reached', 'too little memory', { retryable: true });
  scarce.timing = { hubMs: 0.1 };
  const dial = routing(directory, { h1: failing(tried, 'h1', scarce), h2: async () => established() });
  for (const agent of names) await dial({ ...request, agent });
  assert.deepEqual(tried, ['h1']);
});

for (const [who, refused] of [
  ['an agent', { timing: { hubMs: 2, agentMs: 1 } }],
  ['a Go agent', { timing: { hubMs: 2 }, says: (dial: DialRequest) => dial.acknowledged?.() }],
] as const)
  test(`dials to other agents do not skip the hub of ${who} that is out of sockets`, async (t) => {
    t.mock.method(performance, 'now', () => 0);
    const { names, directory } = onBothHubs(100);
    const full = new DialError('connection_limit_reached', 'too many open files', { retryable: true, ...refused });
    const tried: string[] = [];
    const h1: Dial = (dial) => {
      if ('says' in refused) refused.says(dial);
      return failing(tried, dial.session ?? '', full)(dial);
    };
    const dial = routing(directory, { h1, h2: async () => established() });
    for (const agent of names) for (let round = 0; round < 20; round++) await dial({ ...request, agent });
    assert.deepEqual(tried.sort(), names.map((name) => `${name} on h1`).sort());
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
  const refused = new DialError('proxy_internal_error', 'refused', { retryable: true });
  const hubs: Record<string, Dial | undefined> = {
    h1: failing(tried, 'h1', refused),
    h2: failing(tried, 'h2', refused),
  };
  const dial = routing(plane('h1', 'h2'), hubs, 60_000);
  const attempts = async () => {
    const before = tried.length;
    await assert.rejects(dial(request), refused);
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
  assert.equal(streamOf(answer.end).destroyed, false);
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

test('an exception in our own code after the answer ends the tunnel, and its session counts it no more', async () => {
  const { events, tracer } = unobserved();
  const attempt: typeof tracer.attempt = (...of) => ({
    ...tracer.attempt(...of),
    end({ outcome }) {
      if (outcome === 'established') throw new Error('a defect');
    },
  });
  const directory = plane('h1');
  const answer = established();
  const dial = routing(directory, { h1: async () => answer }, 0, { events, tracer: { ...tracer, attempt } });
  await assert.rejects(dial(request), { code: 'proxy_internal_error' });
  assert.equal(streamOf(answer.end).destroyed, true);
  await new Promise(setImmediate);
  assert.equal(best(directory, 'x')?.open, 0);
});

test('a dial that is not acknowledged within 300 ms also goes through another session, and the loser is aborted', async (t) => {
  const pass = stoppedTime(t);
  const seen: DialRequest[] = [];
  const answer = established();
  const dialled = routing(plane('h1', 'h2'), { h1: silent(seen), h2: async () => answer })(request);
  await new Promise(setImmediate);
  pass(299);
  assert.deepEqual([seen.length, seen[0]?.signal.aborted], [1, false]);
  pass(1);
  assert.equal(await dialled, answer);
  assert.equal(seen[0]?.signal.aborted, true);
});

test('the next dial skips a silent hub', async (t) => {
  const pass = stoppedTime(t);
  const seen: DialRequest[] = [];
  const dial = routing(plane('h1', 'h2'), { h1: silent(seen), h2: async () => established() });
  const first = dial(request);
  await new Promise(setImmediate);
  pass(300);
  await first;
  for (let round = 0; round < 20; round++) await dial(request);
  assert.equal(seen.length, 1);
});

test('a silent session at the hub of this process becomes a suspect, that hub does not', async (t) => {
  const pass = stoppedTime(t);
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
  pass(300);
  await Promise.all(dials);
  assert.ok(dialled.includes('a') && dialled.includes('b'));
});

test('an acknowledged dial is left alone, however long its destination takes', async (t) => {
  const pass = stoppedTime(t);
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
  pass(4000);
  assert.equal(others.length, 0);
  const late = established();
  answer(late);
  assert.equal(await dialled, late);
});

test('a dial that is acknowledged and not answered within 7 s also goes through another session of the same hub or another', async (t) => {
  const pass = stoppedTime(t);
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
  pass(6_999);
  await new Promise(setImmediate);
  const first = [...dialled];
  assert.ok(hung.length > 0 && first.length === 10, first.join());
  pass(1);
  await Promise.all(dials);
  assert.equal(dialled.length, 10 + hung.length);
  assert.ok(dialled.slice(10).every((session) => session === 'well'));
  assert.ok(hung.every(({ signal }) => signal.aborted));
});

test('the first of two answers counts, and the second tunnel is closed unused', async (t) => {
  const pass = stoppedTime(t);
  const [winner, loser] = [established(), established()];
  let answer: (value: Established) => void = () => {};
  const slow: Dial = () =>
    new Promise((resolve) => {
      answer = resolve;
    });
  const dialled = routing(plane('h1', 'h2'), { h1: slow, h2: async () => winner })(request);
  await new Promise(setImmediate);
  pass(300);
  assert.equal(await dialled, winner);
  answer(loser);
  await new Promise((resolve) => streamOf(loser.end).once('close', resolve));
  assert.equal(streamOf(winner.end).destroyed, false);
});

test("one attempt's final answer ends the others", async (t) => {
  const pass = stoppedTime(t);
  const seen: DialRequest[] = [];
  const refused = new DialError('connection_refused', 'dial tcp x:1: connect: connection refused');
  const dialled = routing(plane('h1', 'h2'), { h1: silent(seen), h2: failing([], 'h2', refused) })(request);
  const rejected = assert.rejects(dialled, refused);
  await new Promise(setImmediate);
  pass(300);
  await rejected;
  assert.equal(seen[0]?.signal.aborted, true);
});

test('a hedge that finds no other session costs no retry', async (t) => {
  const pass = stoppedTime(t);
  const directory = plane('h1', 'h2');
  const hubs: Record<string, Dial | undefined> = { h1: silent([]), h2: undefined };
  const dial = routing(directory, hubs);
  for (let round = 0; round < 200; round++) void dial(request);
  await new Promise(setImmediate);
  pass(300);
  const answer = established();
  const lost = new DialError('connection_terminated', 'link lost', { retryable: true });
  hubs.h1 = failing([], 'h1', lost);
  hubs.h2 = async () => answer;
  for (let round = 0; round < 20; round++) assert.equal(await dial(request), answer);
});

test('a dial waits longer for an agent behind a long path, as the links on the way say', async (t) => {
  const pass = stoppedTime(t);
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
  pass(10);
  pass(300 + 2 * 360 - 1);
  assert.equal(seen[0]?.signal.aborted, false);
  pass(1);
  assert.equal(await dialled, answer);
  seen[0]?.underWay?.(0);
});

test('a link that says nothing of the agent behind its hub costs a silent dial no time', async (t) => {
  const pass = stoppedTime(t);
  const answer = established();
  const dialled = routing(plane('h1', 'h2'), {
    h1(dial) {
      dial.underWay?.(0.3);
      return new Promise(() => {});
    },
    h2: async () => answer,
  })(request);
  await new Promise(setImmediate);
  pass(301);
  assert.equal(await dialled, answer);
});

test('hedges leave all retries to dials whose attempts fail', async (t) => {
  const pass = stoppedTime(t);
  const hubs: Record<string, Dial> = { h1: silent([]), h2: silent([]) };
  const dial = routing(plane('h1', 'h2'), hubs);
  for (let round = 0; round < 3000; round++) {
    void dial(request);
    if (round % 100 === 0) await new Promise(setImmediate);
  }
  await new Promise(setImmediate);
  pass(300);
  const answer = established();
  hubs.h1 = failing([], 'h1', new DialError('connection_terminated', 'link lost', { retryable: true }));
  hubs.h2 = async () => answer;
  for (let round = 0; round < 1000; round++) assert.equal(await dial(request), answer);
});

test("one tenant's silent agent does not move other tenants' dials to another hub, silent agents of two tenants do", async (t) => {
  const pass = stoppedTime(t);
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
    nextHop: () => ({ dial: through }),
    parkTimeout: 0,
    observation,
    deadlines: new Deadlines(),
  });
  const dials = async (tenant: string) => {
    dialled.length = 0;
    const asked = dial({ ...request, tenant });
    await new Promise(setImmediate);
    pass(300);
    await asked;
    return [...dialled];
  };
  assert.deepEqual(await dials('one'), ['one near', 'one far']);
  assert.deepEqual(await dials('two'), ['two near', 'two far']);
  assert.deepEqual(await dials('three'), ['three far']);
});

test('a session behind an unreachable hub does not wake a parked dial', async (t) => {
  stoppedTime(t);
  const directory = plane();
  const asked: string[] = [];
  const answer = established();
  const ways: Record<string, Dial> = {};
  const dial = routed({
    directory,
    strategies: ['default'],
    zone: '',
    observation: unobserved(),
    deadlines: new Deadlines(),
    parkTimeout: 2000,
    nextHop(hubId) {
      asked.push(hubId);
      return hop(ways[hubId]);
    },
  });
  const dialled = dial(request);
  join(directory, 'h1');
  await new Promise(setImmediate);
  assert.deepEqual(asked, ['h1'], 'it looked for a session to try');
  ways.h1 = async () => answer;
  directory.reachable('h1');
  assert.equal(await dialled, answer);
});

test('a dial of a tenant without sessions waits for one', async (t) => {
  const pass = stoppedTime(t);
  const directory = plane();
  const answer = established();
  const dialled = routing(directory, { h1: async () => answer }, 2000)(request);
  pass(1999);
  join(directory, 'h1');
  assert.equal(await dialled, answer);
});

test('a parked dial fails with "No agent available" when its time is over, and ends with its caller', async (t) => {
  const pass = stoppedTime(t);
  const dial = routing(plane(), {}, 2000);
  const late = assert.rejects(dial(request), { code: 'destination_unavailable', message: 'No agent available' });
  pass(2000);
  await late;
  const caller = new AbortController();
  const abandoned = assert.rejects(dial({ ...request, signal: caller.signal }), { code: 'destination_unavailable' });
  caller.abort();
  await abandoned;
});

test('a dial whose only session has just gone continues through the next one', async () => {
  const gone = new DialError('destination_unavailable', 'no session', { retryable: true });
  const directory = plane('h1');
  const answer = established();
  const hubs: Record<string, Dial> = {
    h1: () => {
      // The agent's next session arrives once the dial waits for it.
      setImmediate(() => {
        hubs.h2 = async () => answer;
        join(directory, 'h2');
      });
      return Promise.reject(gone);
    },
  };
  assert.equal(await routing(directory, hubs, 2000)(request), answer);
});

test('a dial whose only hub lost its link continues once the hub is reachable again', async () => {
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

test('a parked dial waits for an agent that serves its destination, not for any agent', async (t) => {
  const pass = stoppedTime(t);
  const directory = plane();
  const dial = routed({
    directory,
    strategies: ['destHost'],
    zone: '',
    observation: unobserved(),
    deadlines: new Deadlines(),
    parkTimeout: 2000,
    nextHop: () => ({ dial: async () => established() }),
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
  pass(2000);
  await rejected;
});

test('a destination that none of the agents serves fails at once', async () => {
  const directory = plane('h1');
  const dial = routed({
    directory,
    strategies: ['destHost'],
    zone: '',
    observation: unobserved(),
    deadlines: new Deadlines(),
    parkTimeout: 60_000,
    nextHop: () => ({ dial: async () => established() }),
  });
  await assert.rejects(dial(request), { message: 'No agent available' });
});

test('a dial whose only agent dies under it continues through the next one, and fails with the loss if none comes', async (t) => {
  const pass = stoppedTime(t);
  const lost = new DialError('connection_terminated', 'agent lost', { retryable: true });
  const directory = plane('h1');
  const answer = established();
  const hubs = { h1: failing([], 'h1', lost), h2: async () => answer };
  const dialled = routing(directory, hubs, 2000)(request);
  const late = assert.rejects(routing(plane('h1'), hubs, 2000)(request), lost);
  await new Promise(setImmediate);
  pass(1999);
  join(directory, 'h2');
  assert.equal(await dialled, answer);
  pass(1);
  await late;
});

test('a dial that its only agent refuses or drops fails at once', async () => {
  for (const code of ['connection_limit_reached', 'proxy_internal_error'] as const) {
    const why = new DialError(code, 'out of sockets', { retryable: true });
    await assert.rejects(routing(plane('h1'), { h1: failing([], 'h1', why) }, 60_000)(request), why);
  }
});

function spendAll(budget: RetryBudget, tenant: string): number {
  let count = 0;
  while (budget.spend(tenant)) count++;
  return count;
}

test('a tenant that has used up its retries takes none of another’s, and all together have a ceiling', () => {
  const budget = new RetryBudget();
  const tenants = ['a', 'b', 'c', 'd', 'e', 'f'];
  assert.deepEqual(
    tenants.map((tenant) => spendAll(budget, tenant)),
    [2000, 2000, 2000, 2000, 2000, 0],
  );
  assert.ok(tenants.every((tenant) => budget.spent(tenant)));
});

test('every five dials of a tenant give it a retry, and no more than it had at first', () => {
  const budget = new RetryBudget();
  spendAll(budget, 'a');
  for (let dials = 0; dials < 51; dials++) budget.earn('a');
  assert.equal(spendAll(budget, 'a'), 10);
  for (let dials = 0; dials < 20_000; dials++) budget.earn('a');
  assert.equal(spendAll(budget, 'a'), 2000);
});
