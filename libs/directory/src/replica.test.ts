import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DIRECTORY } from './defaults.ts';
import type { Change, HubRecord, SessionRecord, Snapshot } from './registry.ts';
import { Quarantines, Replica } from './replica.ts';
import { hub, session } from './testing/routing.ts';

const [first, second] = [hub('h1'), hub('h1', { incarnation: 2 })];
const sessionOf = ({ hubId, incarnation }: HubRecord, sessionId: string, version = 1) =>
  session(sessionId, { hubId, incarnation, version });
const putHub = (hub = first): Change => ({ kind: 'hub', hub });
const reopen = (hub: HubRecord, ...sessions: SessionRecord[]): Change => ({ kind: 'hub', hub, sessions });
const dropHub = (incarnation: number): Change => ({ kind: 'hub-gone', hubId: 'h1', incarnation });
const put = (version: number, hub = first): Change => ({ kind: 'session', session: sessionOf(hub, 's1', version) });
const drop = (version: number, incarnation = 1): Change => ({
  kind: 'session-gone',
  sessionId: 's1',
  hubId: 'h1',
  incarnation,
  version,
});

const cases: { name: string; before: Change[]; change: Change; changes: boolean; sessions: number }[] = [
  { name: 'a hub again', before: [putHub(), put(1)], change: putHub(), changes: false, sessions: 1 },
  { name: 'a later incarnation', before: [putHub(), put(1)], change: putHub(second), changes: true, sessions: 0 },
  { name: 'an earlier incarnation', before: [putHub(second)], change: putHub(), changes: false, sessions: 0 },
  { name: "a hub's end", before: [putHub(), put(1)], change: dropHub(1), changes: true, sessions: 0 },
  { name: "a hub's end again", before: [putHub(), dropHub(1)], change: dropHub(1), changes: false, sessions: 0 },
  { name: "an earlier incarnation's end", before: [putHub(second)], change: dropHub(1), changes: false, sessions: 0 },
  { name: 'a session', before: [putHub()], change: put(1), changes: true, sessions: 1 },
  { name: 'a session again', before: [putHub(), put(1)], change: put(1), changes: false, sessions: 1 },
  { name: 'a later version', before: [putHub(), put(1)], change: put(2), changes: true, sessions: 1 },
  { name: 'an earlier version', before: [putHub(), put(2)], change: put(1), changes: false, sessions: 1 },
  { name: 'a session of no hub', before: [], change: put(1), changes: false, sessions: 0 },
  {
    name: 'a session of an earlier incarnation',
    before: [putHub(second)],
    change: put(1),
    changes: false,
    sessions: 0,
  },
  { name: "a session's end", before: [putHub(), put(1)], change: drop(2), changes: true, sessions: 0 },
  { name: "a session's end again", before: [putHub(), put(1), drop(2)], change: drop(2), changes: false, sessions: 0 },
  { name: 'an end before the version', before: [putHub(), put(3)], change: drop(2), changes: false, sessions: 1 },
  {
    name: 'an end by an earlier incarnation',
    before: [putHub(second), put(1, second)],
    change: drop(9, 1),
    changes: false,
    sessions: 1,
  },
  {
    name: 'a session of a later incarnation than its hub',
    before: [putHub()],
    change: put(1, second),
    changes: false,
    sessions: 0,
  },
  {
    name: 'a hub that wrote its sessions again',
    before: [putHub(), put(1)],
    change: reopen(first, sessionOf(first, 's2'), sessionOf(first, 's3')),
    changes: true,
    sessions: 2,
  },
  {
    name: 'a hub that wrote the same sessions again',
    before: [putHub(), put(2)],
    change: reopen(first, sessionOf(first, 's1', 2)),
    changes: false,
    sessions: 1,
  },
  {
    name: 'a hub that wrote its sessions again, with an earlier version',
    before: [putHub(), put(1e9)],
    change: reopen(first, sessionOf(first, 's1', 1)),
    changes: true,
    sessions: 1,
  },
  {
    name: 'an earlier incarnation that wrote its sessions again',
    before: [putHub(second), put(1, second)],
    change: reopen(first),
    changes: false,
    sessions: 1,
  },
];

for (const { name, before, change, changes, sessions } of cases) {
  test(`${name} ${changes ? 'is a change' : 'changes nothing'}`, () => {
    const replica = replicaOf(...before);
    assert.equal(replica.apply(change), changes);
    assert.equal([...replica.sessions()].length, sessions);
  });
}

function replicaOf(...changes: Change[]): Replica {
  const replica = new Replica();
  for (const change of changes) replica.apply(change);
  return replica;
}

const snapshot = (more: Partial<Snapshot>): Snapshot => ({ hubs: [], sessions: [], quarantines: [], ...more });

test('a snapshot replaces the sessions of its hubs; a hub that it lacks stays with its own', () => {
  const other = hub('h2');
  const replica = replicaOf(putHub(), put(1), reopen(other, sessionOf(other, 'stays')));
  replica.reset(snapshot({ hubs: [first], sessions: [sessionOf(first, 's2')] }));
  assert.deepEqual(
    replica.snapshot(),
    snapshot({ hubs: [first, other], sessions: [sessionOf(first, 's2'), sessionOf(other, 'stays')] }),
  );
});

test('a snapshot replaces a later record too, which the registry has lost or no hub wrote', () => {
  const replica = replicaOf(putHub(), put(1e9));
  replica.reset(snapshot({ hubs: [first], sessions: [sessionOf(first, 's1', 4)] }));
  assert.deepEqual([...replica.sessions()], [sessionOf(first, 's1', 4)]);
});

test('what a hub writes holds against a later incarnation that the registry has forgotten', () => {
  const forged = hub('h1', { incarnation: 1e15 });
  const replica = replicaOf(putHub(forged), put(1, forged));
  assert.equal(replica.apply(reopen(first, sessionOf(first, 's2'))), false);
  replica.reset(snapshot({}));
  assert.equal(replica.apply(reopen(first, sessionOf(first, 's2'))), true);
  assert.deepEqual(replica.snapshot(), snapshot({ hubs: [first], sessions: [sessionOf(first, 's2')] }));
  assert.equal(replica.apply(dropHub(0)), false);
});

test('a snapshot replaces a later incarnation too, after a clock or the registry was set back', () => {
  const replica = replicaOf(putHub(second), put(1, second));
  replica.reset(snapshot({ hubs: [first], sessions: [sessionOf(first, 's2')] }));
  assert.deepEqual(replica.snapshot(), snapshot({ hubs: [first], sessions: [sessionOf(first, 's2')] }));
});

test('a snapshot leaves later quarantine records, and they are returned', () => {
  const said = (agentId: string, version: number) => ({ tenant: 'default', agentId, reason: '', version });
  const replica = new Replica();
  const say = (agentId: string, version: number) =>
    replica.apply({ kind: 'quarantine', quarantine: said(agentId, version) });
  assert.deepEqual([say('a', 1), say('b', 2), say('c', 1), say('b', 1)], [true, true, true, false]);
  const missing = replica.reset(snapshot({ quarantines: [said('a', 2), said('b', 1), said('d', 1)] }));
  assert.deepEqual(missing, [said('b', 2), said('c', 1)]);
  assert.deepEqual(replica.quarantines.all(), [said('a', 2), said('b', 2), said('c', 1), said('d', 1)]);
  assert.deepEqual(replica.reset(replica.snapshot()), []);
});

test('only a bounded number of released agents is remembered, the latest ones', () => {
  const all = new Quarantines();
  all.apply({ tenant: 't', agentId: 'in', reason: '', version: 0 });
  for (let n = 1; n <= DIRECTORY.quarantined + 5; n++) all.apply({ tenant: 't', agentId: `out-${n}`, version: n });
  assert.equal(all.all().length, DIRECTORY.quarantined + 1);
  assert.deepEqual([all.size, all.inForce().length], [1, 1]);
  assert.equal(all.last({ tenant: 't', agentId: 'out-5' }), undefined);
  assert.equal(all.last({ tenant: 't', agentId: 'out-6' })?.version, 6);
});

test('names that are equal once joined are not confused', () => {
  const all = new Quarantines();
  all.apply({ tenant: 'a', agentId: 'b c', reason: '', version: 1 });
  assert.equal(all.of({ tenant: 'a b', agentId: 'c' }), undefined);
  assert.ok(all.of({ tenant: 'a', agentId: 'b c' }));
});
