import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Change } from '@isthmus/tunnel';
import { Copy } from './copy.ts';
import { hubRecord, sessionRecord } from './testing/records.ts';

const [first, second] = [hubRecord('h1', 1), hubRecord('h1', 2)];
const putHub = (hub = first): Change => ({ kind: 'hub', hub });
const dropHub = (incarnation: number): Change => ({ kind: 'hub-gone', hubId: 'h1', incarnation });
const put = (version: number, hub = first): Change => ({ kind: 'session', session: sessionRecord(hub, 's1', version) });
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
];

describe('copy of the directory', () => {
  for (const { name, before, change, changes, sessions } of cases) {
    it(`treats ${name} as ${changes ? 'a change' : 'nothing new'}`, () => {
      const copy = new Copy();
      for (const earlier of before) copy.apply(earlier);
      assert.equal(copy.apply(change), changes);
      assert.equal(copy.snapshot().sessions.length, sessions);
    });
  }

  it('adopts hubs that it lacks, with their sessions, and keeps its own', () => {
    const [mine, other] = [new Copy(), new Copy()];
    const h2 = hubRecord('h2');
    for (const change of [putHub(), put(1), { kind: 'hub', hub: h2 } as const]) other.apply(change);
    other.apply({ kind: 'session', session: sessionRecord(h2, 's2') });
    mine.apply(putHub());
    mine.adopt(other);
    assert.deepEqual(mine.hubIds(), ['h1', 'h2']);
    assert.deepEqual(mine.snapshot().sessions, [sessionRecord(h2, 's2')]);
  });

  it('adopts later quarantine records, and returns them', () => {
    const [mine, other] = [new Copy(), new Copy()];
    const said = (agentId: string, version: number) => ({ tenant: 'default', agentId, reason: '', version });
    const say = (copy: Copy, agentId: string, version: number) =>
      copy.apply({ kind: 'quarantine', quarantine: said(agentId, version) });
    assert.deepEqual([say(mine, 'a', 2), say(mine, 'b', 1), say(mine, 'a', 1)], [true, true, false]);
    for (const [agentId, version] of [
      ['a', 1],
      ['b', 2],
      ['c', 1],
    ] as const)
      say(other, agentId, version);
    assert.deepEqual(mine.adopt(other), [said('b', 2), said('c', 1)]);
    assert.deepEqual(mine.snapshot().quarantines, [said('a', 2), said('b', 2), said('c', 1)]);
  });
});
