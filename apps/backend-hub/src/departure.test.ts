import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Directory } from '@isthmus/directory';
import { planeEvents } from '@isthmus/tunnel';
import { giveUpSessions } from './departure.ts';
import { sessionsAtOtherHubs } from './other-hubs.ts';
import { SessionTable } from './sessions.ts';
import { idleDialer } from './testing/idle-dialer.ts';

const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };

/** A hub `own` with sessions of these agents, and the directory that it sees; `announced` is what others see of it. */
function hub(...agents: string[]) {
  const directory = new Directory();
  const announced = new Set<string>();
  const sessions = new SessionTable({
    hubId: 'own',
    incarnation: 1,
    events: planeEvents(),
    changed() {},
    registration: {
      announce: ({ sessionId }) => void announced.add(sessionId),
      withdraw: (sessionId) => void announced.delete(sessionId),
    },
  });
  for (const agentId of agents) {
    const identity = { tenant: 'default', agentId, identifiers, protocol: 'link' as const, remote: 'test' };
    sessions.add(`own-${agentId}`, identity, idleDialer({ busy: true }));
  }
  const other = (draining = false) => {
    const record = { hubId: 'other', incarnation: 1, peerAddress: 'h:1', agentAddress: '', zone: '', draining };
    directory.apply({ kind: 'hub', hub: record });
  };
  const moved = (agentId: string) => {
    const record = { tenant: 'default', agentId, identifiers, hubId: 'other', incarnation: 1, version: 1 };
    const session = { ...record, sessionId: `other-${agentId}`, draining: false, since: 0 };
    directory.apply({ kind: 'session', session });
  };
  return { directory, sessions, announced, other, moved };
}

test('a session is kept until its agent has another, and takes dials for so long', { timeout: 60_000 }, async (t) => {
  // The time that agents have to move is never over.
  t.mock.method(performance, 'now', () => 0);
  const { directory, sessions, announced, other, moved } = hub('a1', 'a2');
  other();
  moved('a1');
  const gone = giveUpSessions(sessions, directory, 'own');
  while (sessions.held === 2) await new Promise(setImmediate);
  assert.deepEqual([...announced], ['own-a2'], 'gateways know no more of the session that is given up');
  moved('a2');
  await gone;
  assert.deepEqual([sessions.held, sessions.size, announced.size], [0, 2, 0], 'tunnels still run');
});

test('a session with a hub that the registry misses, or that drains, is no other session', async () => {
  const { directory, moved, other } = hub('a1');
  moved('a1');
  assert.equal(sessionsAtOtherHubs(directory, 'own').size, 0);
  other();
  moved('a1');
  assert.equal(sessionsAtOtherHubs(directory, 'own').size, 1);
  other(true);
  assert.equal(sessionsAtOtherHubs(directory, 'own').size, 0);
});

test('where there is no other hub, or only one that goes too, nothing is waited for', {
  timeout: 60_000,
}, async (t) => {
  t.mock.method(performance, 'now', () => 0);
  for (const neighbour of [false, true]) {
    const { directory, sessions, other } = hub('a1');
    if (neighbour) other(true);
    await giveUpSessions(sessions, directory, 'own');
    assert.equal(sessions.held, 0);
  }
});

test('a dial for a session that is given up may be tried elsewhere', async () => {
  const { sessions } = hub('a1');
  sessions.giveUp(() => true);
  const request = {
    id: '0000000000000001',
    tenant: 'default',
    session: 'own-a1',
    deadline: performance.now() + 60_000,
    destination: { host: 'h', port: 1 },
    signal: new AbortController().signal,
  };
  await assert.rejects(sessions.dial(request), { code: 'destination_unavailable', retryable: true });
});
