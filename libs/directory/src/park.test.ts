import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Dial, DialError } from '@isthmus/tunnel';
import { established, request, unobserved } from '@isthmus/tunnel/testing';
import { routed } from './attempts.ts';
import { failing, join, plane, routing } from './testing/routing.ts';

test('a session behind an unreachable hub does not wake a parked dial', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const directory = plane();
  const asked: string[] = [];
  const answer = established();
  const ways: Record<string, Dial> = {};
  const dial = routed({
    directory,
    strategies: ['default'],
    zone: '',
    observation: unobserved(),
    parkTimeout: 2000,
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

test('a dial of a tenant without sessions waits for one', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const directory = plane();
  const answer = established();
  const dialled = routing(directory, { h1: async () => answer }, 2000)(request);
  t.mock.timers.tick(1999);
  join(directory, 'h1');
  assert.equal(await dialled, answer);
  t.mock.timers.reset();
});

test('a parked dial fails with "No agent available" when its time is over, and ends with its caller', async (t) => {
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
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const directory = plane();
  const dial = routed({
    directory,
    strategies: ['destHost'],
    zone: '',
    observation: unobserved(),
    parkTimeout: 2000,
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
    directory,
    strategies: ['destHost'],
    zone: '',
    observation: unobserved(),
    parkTimeout: 60_000,
    hub: () => async () => established(),
  });
  await assert.rejects(dial(request), { message: 'No agent available' });
});

test('a dial whose only agent dies while the dial is pending fails at once', async () => {
  const lost = new DialError('connection_terminated', 'agent lost', { retryable: true });
  await assert.rejects(routing(plane('h1'), { h1: failing([], 'h1', lost) }, 60_000)(request), lost);
});
