import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Directory, type HubRecord, type Member, type SessionRecord } from '@isthmus/directory';
import { type PlaneEvents, planeEvents } from '@isthmus/tunnel';
import { aSession } from '../testing/backend.ts';
import { Recent } from './recent.ts';
import { Losses } from './recent-losses.ts';

function hub(hubId: string, draining = false): HubRecord {
  return { hubId, incarnation: 1, peerAddress: `${hubId}:8097`, agentAddress: '', zone: '', draining };
}

function session(agentId: string, hubId: string, version = 1, draining = false): SessionRecord {
  const identifiers = { ipv4: ['10.0.0.7'], ipv6: [], host: [], cidr: [], defaultRoute: false };
  const names = { sessionId: `${agentId} at ${hubId}`, tenant: 'default', agentId, hubId };
  return { ...names, incarnation: 1, version, identifiers, draining, since: 0 };
}

function gateway(sessions: readonly SessionRecord[], hubs: readonly HubRecord[] = [hub('h1'), hub('h2')]) {
  const events = planeEvents();
  const directory = new Directory();
  directory.reset({ hubs, sessions, quarantines: [] });
  return { events, directory, ...following(events, directory, true) };
}

function following(events: PlaneEvents, directory: Directory, follows: boolean) {
  const recent = new Recent(events);
  return { recent, losses: new Losses(events, recent, directory, follows) };
}

const namesOf = (recent: Recent) => recent.losses().map(({ role, id, left }) => `${role} ${id}${left ? ' left' : ''}`);

function gone(directory: Directory, agentId: string, hubId: string): void {
  directory.apply({ kind: 'session-gone', sessionId: `${agentId} at ${hubId}`, hubId, incarnation: 1, version: 9 });
}

test('a gateway has lost an agent once its last session is gone, until it comes back', () => {
  const { directory, recent } = gateway([session('a', 'h1'), session('a', 'h2')]);
  gone(directory, 'a', 'h1');
  assert.deepEqual(namesOf(recent), []);
  gone(directory, 'a', 'h2');
  assert.deepEqual(namesOf(recent), ['agent a']);
  assert.deepEqual(recent.losses()[0]?.identifiers?.ipv4, ['10.0.0.7']);
  directory.apply({ kind: 'session', session: session('a', 'h1', 10) });
  assert.deepEqual(namesOf(recent), []);
});

test('who is lost is an event too, with where it was last, until it comes back', () => {
  const { events, directory, recent } = gateway([session('a', 'h1')], [hub('h1'), hub('h2')]);
  gone(directory, 'a', 'h1');
  events.emit('peer:close', 'h2', 'h2:8097', 'silent');
  const told = () => recent.events().map(({ type, role, id, hubId, reason }) => [type, role, id, hubId, reason]);
  assert.deepEqual(told(), [
    ['went', 'hub', 'h2', '', 'silent'],
    ['went', 'agent', 'a', 'h1', 'without a word'],
    ['went', 'hub', 'h2', '', 'silent'],
  ]);
  directory.apply({ kind: 'session', session: session('a', 'h1', 10) });
  assert.equal(told().length, 2);
});

test('a session whose record changes is not lost, and one that drained has left', () => {
  const { directory, recent } = gateway([session('a', 'h1')]);
  directory.apply({ kind: 'session', session: session('a', 'h1', 2, true) });
  assert.deepEqual(namesOf(recent), []);
  gone(directory, 'a', 'h1');
  assert.deepEqual(namesOf(recent), ['agent a left']);
});

test('a hub is lost when its link closes, unless it drained, and until it is linked again', () => {
  const { events, recent } = gateway([], [hub('h1'), hub('h2', true)]);
  events.emit('peer:close', 'h1', 'h1:8097', 'silent');
  events.emit('peer:close', 'h2', 'h2:8097', 'it stops');
  assert.deepEqual(namesOf(recent), ['hub h2 left', 'hub h1']);
  assert.deepEqual(
    recent.losses().map(({ remote, reason }) => [remote, reason]),
    [
      ['h2:8097', 'it stops'],
      ['h1:8097', 'silent'],
    ],
  );
  events.emit('peer:open', 'h1', 'h1:8097');
  assert.deepEqual(namesOf(recent), ['hub h2 left']);
});

function listed(memberId: string, quietMs: number, roles: Member['roles'] = ['gateway']): Member & { quietMs: number } {
  return { memberId, roles, adminAddress: `${memberId}:8095`, host: 'h', version: '1', zone: '', since: 1, quietMs };
}

const own = listed('own', 0, ['hub']);

/** A list of members that has this process, too. */
function list(losses: Losses, ...members: readonly ReturnType<typeof listed>[]): void {
  losses.listed([...members, own]);
}

test('a gateway is lost when it was silent before it left the list, until it is back', () => {
  const { recent, losses } = gateway([]);
  const others = [listed('s', 12_000, ['gateway', 'hub']), listed('h', 12_000, ['hub'])];
  list(losses, listed('g1', 4_000), listed('g2', 12_000), ...others);
  list(losses);
  assert.deepEqual(namesOf(recent), [], 'the second list decides');
  list(losses);
  assert.deepEqual(namesOf(recent), ['gateway g2', 'gateway g1 left']);
  const [{ remote, reason, tenant } = {}] = recent.losses();
  assert.deepEqual([remote, reason, tenant], ['g2:8095', 'silent for 12 s', '']);
  list(losses, listed('g2', 100));
  assert.deepEqual(namesOf(recent), ['gateway g1 left']);
});

test('a gateway that one list lacks is not lost: it has until the next to write again', () => {
  const { recent, losses } = gateway([]);
  list(losses, listed('g1', 4_000));
  list(losses);
  list(losses, listed('g1', 100));
  list(losses, listed('g1', 100));
  assert.deepEqual(namesOf(recent), []);
});

test('a gateway whose successor has its name is not lost', () => {
  const { recent, losses } = gateway([]);
  const successor = { ...listed('g1', 100), since: 2 };
  list(losses, listed('g1', 12_000), successor);
  for (let n = 0; n < 3; n++) list(losses, successor);
  assert.deepEqual(namesOf(recent), []);
});

test('a gateway and a hub with one name are two losses', () => {
  const { events, recent, losses } = gateway([]);
  list(losses, listed('h1', 12_000));
  for (let n = 0; n < 2; n++) list(losses);
  events.emit('peer:close', 'h1', 'h1:8097', 'silent');
  assert.deepEqual(namesOf(recent), ['hub h1', 'gateway h1']);
  events.emit('peer:open', 'h1', 'h1:8097');
  assert.deepEqual(namesOf(recent), ['gateway h1']);
});

function ended(events: PlaneEvents, agentId: string, reason: string): void {
  events.emit('session:close', aSession(`s ${agentId}`, { agentId }), reason);
}

test('a hub knows from where it lost an agent, and why', () => {
  const events = planeEvents();
  const { recent } = following(events, new Directory(), false);
  for (const agentId of ['a', 'b', 'c']) events.emit('session:open', aSession(`s ${agentId}`, { agentId }));
  ended(events, 'a', 'silent');
  events.emit('session:drain', aSession('s b', { agentId: 'b' }));
  ended(events, 'b', 'the agent leaves');
  assert.deepEqual(
    recent.losses().map(({ id, remote, reason, left }) => [id, remote, reason, left]),
    [
      ['b', '10.0.0.1:5000', 'the agent leaves', true],
      ['a', '10.0.0.1:5000', 'silent', false],
    ],
  );
  events.emit('session:open', aSession('s2', { agentId: 'a' }));
  assert.deepEqual(namesOf(recent), ['agent b left']);
});

test('losses are forgotten after an hour, and their number is bounded', () => {
  const events = planeEvents();
  const { recent } = following(events, new Directory(), false);
  for (let n = 0; n < 1000; n++) ended(events, `a${n}`, 'x'.repeat(10_000));
  assert.equal(recent.losses().length, 100);
  assert.equal(recent.losses()[0]?.id, 'a999');
  assert.equal(recent.losses()[0]?.reason.length, 300);
  assert.deepEqual(recent.losses(Date.now() + 3_600_001), []);
});
