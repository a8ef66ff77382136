import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Dial, DialError, planeEvents } from '@isthmus/tunnel';
import { type Refuse, SessionTable } from './sessions.ts';
import { idleDialer } from './testing/idle-dialer.ts';

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
  sessions.add('s1', agent, idleDialer());
  await sessions.idle();
  assert.equal(sessions.size, 0);
});

test('an agent that was being let in while the hub stopped does not keep it from stopping', {
  timeout: 60_000,
}, async () => {
  const sessions = table();
  sessions.destroy(new Error('hub stops'));
  const agent = { tenant: 'default', agentId: 'a1', identifiers, protocol: 'link' as const, remote: 'test' };
  const dialer = idleDialer({ busy: true });
  sessions.add('s1', agent, dialer);
  assert.equal((await dialer.closed).message, 'hub stops');
});

test('sessions are counted by tenant, and a tenant without any is forgotten', async () => {
  const sessions = table();
  const dialers = ['a', 'a', 'b'].map((tenant, n) => {
    const dialer = idleDialer();
    sessions.add(`s${n}`, { tenant, agentId: 'a1', identifiers, protocol: 'link', remote: 'test' }, dialer);
    return dialer;
  });
  assert.deepEqual(
    [...sessions.tenants],
    [
      ['a', 2],
      ['b', 1],
    ],
  );
  for (const dialer of dialers.slice(1)) dialer.destroy(new Error('gone'));
  await Promise.all(dialers.slice(1).map(({ closed }) => closed));
  await new Promise(setImmediate);
  assert.deepEqual([...sessions.tenants], [['a', 1]]);
});

test('sessions that are kicked end with the reason, and no others', async () => {
  const events = planeEvents();
  const sessions = table(events);
  const closed: string[] = [];
  events.on('session:close', ({ sessionId }, reason) => closed.push(`${sessionId}: ${reason}`));
  for (const [n, agentId] of ['a1', 'a2', 'a1'].entries()) {
    const dialer = idleDialer({ busy: true });
    sessions.add(`s${n}`, { tenant: 'a', agentId, identifiers, protocol: 'link', remote: 'test' }, dialer);
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
  sessions.add('s1', agent, { ...idleDialer(), dial }, refuse);
  const { signal } = new AbortController();
  const request = { id: '00000000000000aa', tenant: 'default', deadline: 1e12, signal, session: 's1' };
  const to = (host: string) => sessions.dial({ ...request, destination: { host, port: 1 } });
  await assert.rejects(to('denied'), denied);
  await assert.rejects(to('allowed'), { code: 'connection_refused' });
  assert.deepEqual(dialled, ['allowed']);
});
