import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import type { Tenancy } from '@isthmus/plane';
import { deferred } from '@isthmus/runtime';
import { NotAuthorised } from '@isthmus/tunnel';
import { AgentAdmission } from './agent-admission.ts';
import type { SessionTable } from './sessions.ts';

function connection() {
  const socket = Object.assign(new EventEmitter(), {
    destroyed: false,
    remoteAddress: '10.0.0.1',
    destroy: () => {
      socket.destroyed = true;
    },
  });
  return socket;
}

/** An admission whose agents are judged so. @returns how an agent asks it */
function admission(agent: () => Promise<never>) {
  const tenancy = { identify: { agent } } as unknown as Tenancy;
  const limits = { identifiers: 10, identifierBytes: 1000, sessions: 10 };
  const admits = new AgentAdmission({ tenancy, limits }, {} as SessionTable, () => undefined);
  return (socket: ReturnType<typeof connection>) =>
    admits.link({ agentId: 'a', identifiers: '', token: 'junk', version: 'test' }, socket as unknown as Socket);
}

const TOO_MANY = /^NotAuthorised: 4 attempts on its connection were refused or are not decided yet: connect again$/;

test('a connection that is refused again and again costs a few verifications, and ends', async () => {
  let judged = 0;
  const ask = admission(() => {
    judged++;
    return Promise.reject(new NotAuthorised('nobody knows it'));
  });
  const [patient, other] = [connection(), connection()];
  for (let i = 0; i < 4; i++) await assert.rejects(ask(patient), /nobody knows it/);
  assert.equal(patient.destroyed, false);
  await assert.rejects(ask(patient), TOO_MANY);
  assert.deepEqual([judged, patient.destroyed], [4, true]);
  await assert.rejects(ask(other), /nobody knows it/);
  assert.deepEqual([judged, other.destroyed], [5, false]);
});

test('attempts that nobody has refused yet count too, and are not called refused', async () => {
  const verdict = deferred<never>();
  const ask = admission(() => verdict.promise);
  const hasty = connection();
  const undecided = [1, 2, 3, 4].map(() => ask(hasty));
  await assert.rejects(ask(hasty), TOO_MANY);
  assert.equal(hasty.destroyed, true);
  verdict.reject(new NotAuthorised('nobody knows it'));
  await Promise.all(undecided.map((attempt) => assert.rejects(attempt, /nobody knows it/)));
});
