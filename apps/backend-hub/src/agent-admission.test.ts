import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import type { Tenancy } from '@isthmus/plane';
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

test('a connection that is refused again and again costs a few verifications, and ends', async () => {
  let judged = 0;
  const agent = () => {
    judged++;
    return Promise.reject(new NotAuthorised('nobody knows it'));
  };
  const tenancy = { authority: { agent } } as unknown as Tenancy;
  const limits = { identifiers: 10, identifierBytes: 1000, sessions: 10 };
  const admission = new AgentAdmission({ tenancy, limits }, {} as SessionTable, () => undefined);
  const [patient, other] = [connection(), connection()];
  const ask = (socket: ReturnType<typeof connection>) =>
    admission.link({ agentId: 'a', identifiers: '', token: 'junk', version: 'test' }, socket as unknown as Socket);
  for (let i = 0; i < 4; i++) await assert.rejects(ask(patient), /nobody knows it/);
  assert.equal(patient.destroyed, false);
  await assert.rejects(ask(patient), /refused 4 times on this connection/);
  assert.deepEqual([judged, patient.destroyed], [4, true]);
  await assert.rejects(ask(other), /nobody knows it/);
  assert.deepEqual([judged, other.destroyed], [5, false]);
});
