import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Directory, type SessionRecord } from '@isthmus/directory';
import { type Dial, DialError, planeEvents } from '@isthmus/tunnel';
import { giveUpSessions, type Refuse, SessionTable, sessionsAtOtherHubs } from './sessions.ts';
import { idleConnection } from './testing/idle-connection.ts';

const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };

/** The sessions of a hub that nobody watches. */
function table(events = planeEvents()): SessionTable {
  const registration = { announce() {}, withdraw() {} };
  return new SessionTable({ hubId: 'h1', incarnation: 1, events, registration, changed() {} });
}

test('an agent that was being let in while the hub began to drain does not keep it from going', {
  timeout: 60_000,
}, async () => {
  const sessions = table();
  sessions.leave();
  const agent = { tenant: 'default', agentId: 'a1', identifiers, protocol: 'link' as const, remote: 'test' };
  sessions.add('s1', agent, idleConnection());
  await sessions.idle();
  assert.equal(sessions.size, 0);
});

test('an agent that was being let in while the hub stopped does not keep it from stopping', {
  timeout: 60_000,
}, async () => {
  const sessions = table();
  sessions.destroy(new Error('hub stops'));
  const agent = { tenant: 'default', agentId: 'a1', identifiers, protocol: 'link' as const, remote: 'test' };
  const connection = idleConnection({ busy: true });
  sessions.add('s1', agent, connection);
  assert.equal((await connection.closed).message, 'hub stops');
});

test('sessions are counted by tenant, and a tenant without any is forgotten', async () => {
  const sessions = table();
  const connections = ['a', 'a', 'b'].map((tenant, n) => {
    const connection = idleConnection();
    sessions.add(`s${n}`, { tenant, agentId: 'a1', identifiers, protocol: 'link', remote: 'test' }, connection);
    return connection;
  });
  assert.deepEqual(
    [...sessions.tenants],
    [
      ['a', 2],
      ['b', 1],
    ],
  );
  for (const connection of connections.slice(1)) connection.destroy(new Error('gone'));
  await Promise.all(connections.slice(1).map(({ closed }) => closed));
  await new Promise(setImmediate);
  assert.deepEqual([...sessions.tenants], [['a', 1]]);
});

test('sessions that are kicked end with the reason, and no others', async () => {
  const events = planeEvents();
  const sessions = table(events);
  const closed: string[] = [];
  events.on('session:close', ({ sessionId }, reason) => closed.push(`${sessionId}: ${reason}`));
  for (const [n, agentId] of ['a1', 'a2', 'a1'].entries()) {
    const connection = idleConnection({ busy: true });
    sessions.add(`s${n}`, { tenant: 'a', agentId, identifiers, protocol: 'link', remote: 'test' }, connection);
  }
  const kicked = sessions.kick(({ agentId }) => agentId === 'a1', new Error('ended by an operator'));
  assert.deepEqual(
    kicked.map(({ sessionId }) => sessionId),
    ['s0', 's2'],
  );
  await new Promise(setImmediate);
  assert.deepEqual(closed, ['s0: ended by an operator', 's2: ended by an operator']);
  assert.deepEqual(
    [...sessions.list()].map(({ sessionId, draining }) => [sessionId, draining]),
    [['s1', false]],
  );
});

test('a silent session is announced as draining until it is heard again, and keeps that it drains', () => {
  const announced: (boolean | undefined)[] = [];
  const registration = { announce: ({ draining }: SessionRecord) => announced.push(draining), withdraw() {} };
  const events = planeEvents();
  const told: boolean[] = [];
  events.on('session:suspect', (_session, is) => told.push(is));
  const sessions = new SessionTable({ hubId: 'h1', incarnation: 1, events, registration, changed() {} });
  const agent = { tenant: 'default', agentId: 'a1', identifiers, protocol: 'link' as const, remote: 'test' };
  sessions.add('s1', agent, idleConnection());
  const listed: (boolean | undefined)[] = [];
  for (const is of [true, false]) {
    sessions.suspect('s1', is);
    listed.push(...[...sessions.list()].map(({ suspected }) => suspected));
  }
  assert.deepEqual(listed, [true, false]);
  sessions.drain('s1');
  for (const is of [true, false]) sessions.suspect('s1', is);
  sessions.suspect('absent', true);
  assert.deepEqual(announced, [false, true, false, true, true, true]);
  assert.deepEqual(told, [true, false, true, false]);
});

test('a dial that the session may not carry is refused, and others pass', async () => {
  const sessions = table();
  const agent = { tenant: 'default', agentId: 'a1', identifiers, protocol: 'packets' as const, remote: 'test' };
  const denied = new DialError('destination_ip_prohibited', 'no rule allows it');
  const dialled: string[] = [];
  const dial: Dial = async ({ destination }) => {
    dialled.push(destination.host);
    throw new DialError('connection_refused', 'refused');
  };
  const refuse: Refuse = ({ destination }) => (destination.host === 'denied' ? denied : undefined);
  sessions.add('s1', agent, { ...idleConnection(), dial }, refuse);
  const { signal } = new AbortController();
  const request = { id: '00000000000000aa', tenant: 'default', deadline: 1e12, signal, session: 's1' };
  const to = (host: string) => sessions.dial({ ...request, destination: { host, port: 1 } });
  await assert.rejects(to('denied'), denied);
  await assert.rejects(to('allowed'), { code: 'connection_refused' });
  assert.deepEqual(dialled, ['allowed']);
});

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
    sessions.add(`own-${agentId}`, identity, idleConnection({ busy: true }));
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
  while (sessions.taking === 2) await new Promise(setImmediate);
  assert.deepEqual([...announced], ['own-a2'], 'gateways know no more of the session that is given up');
  moved('a2');
  await gone;
  assert.deepEqual([sessions.taking, sessions.size, announced.size], [0, 2, 0], 'tunnels still run');
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
    assert.equal(sessions.taking, 0);
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
