import assert from 'node:assert/strict';
import { beforeEach, describe, it, type TestContext, test } from 'node:test';
import { changed, until } from '@isthmus/runtime/testing';
import { DIRECTORY } from './defaults.ts';
import { Directory } from './directory.ts';
import { type Following, follow, Roster } from './follow.ts';
import { memoryRegistry } from './memory.ts';
import type { Member, Registry, WatchListener } from './registry.ts';
import { hubRecord, sessionRecord } from './testing/observer.ts';

const h1 = hubRecord('h1');
const h2 = hubRecord('h2');
const snapshot = { hubs: [h1, h2], sessions: [sessionRecord(h1, 's1'), sessionRecord(h2, 's2')], quarantines: [] };
const expired = { kind: 'hub-gone', hubId: 'h1', incarnation: 1, expired: true } as const;

/** A registry whose watch the test controls. */
function toldBy(test: (listener: WatchListener) => void): Registry {
  return {
    register: () => assert.fail('a follower registers nothing'),
    join: () => assert.fail('a follower watches'),
    quarantine: () => assert.fail('a follower watches'),
    members: () => assert.fail('a follower watches'),
    watch: test,
    close: async () => {},
  };
}

describe('following the registry', () => {
  let registry: WatchListener;
  let following: Following;
  let directory: Directory;
  let links: Set<string>;
  let told: string[][];

  beforeEach(() => {
    directory = new Directory({ ownHub: 'own' });
    links = new Set();
    told = [];
    const plane = toldBy((listener) => {
      registry = listener;
    });
    following = follow(plane, {
      directory,
      linked: (hubId) => links.has(hubId),
      hubs: (hubs) => told.push(hubs.map(({ hubId }) => hubId)),
      state() {},
      signal: new AbortController().signal,
    });
    registry.snapshot(snapshot);
  });

  const sessions = () => [...directory.sessions()].map(({ sessionId }) => sessionId).sort();
  const unlink = (hubId: string) => {
    links.delete(hubId);
    following.unlinked(hubId);
  };

  it('drops a hub whose heartbeat is missing when there is no link to it', () => {
    registry.change(expired);
    assert.deepEqual(sessions(), ['s2']);
    assert.deepEqual(told.at(-1), ['h2']);
  });

  it('keeps a hub whose heartbeat is missing for as long as its link is up', () => {
    links.add('h1');
    registry.change(expired);
    assert.deepEqual(sessions(), ['s1', 's2']);
    unlink('h1');
    assert.deepEqual(sessions(), ['s2']);
    assert.deepEqual(told, [['h1', 'h2'], ['h2']]);
  });

  it('keeps a hub that a fresh snapshot lacks until it is reported gone, and a linked one for as long as its link is up', () => {
    links.add('h1');
    registry.snapshot({ hubs: [], sessions: [], quarantines: [] });
    assert.deepEqual(sessions(), ['s1', 's2']);
    for (const hubId of ['h1', 'h2']) registry.change({ ...expired, hubId });
    assert.deepEqual(sessions(), ['s1']);
    registry.snapshot({ hubs: [], sessions: [], quarantines: [] });
    assert.deepEqual(sessions(), ['s1']);
    unlink('h1');
    assert.deepEqual(sessions(), []);
  });

  it('tells the registry of the hubs that it knows, and of the quarantines that a snapshot lacks', () => {
    const said = { tenant: 'default', agentId: 'a', reason: '', version: 1 };
    registry.change({ kind: 'quarantine', quarantine: said });
    assert.deepEqual(registry.snapshot(snapshot), [said]);
    assert.deepEqual([...registry.hubs()], [h1, h2]);
  });

  it('drops a hub that closed in order, even if its link is up', () => {
    links.add('h1');
    registry.change({ kind: 'hub-gone', hubId: 'h1', incarnation: 1 });
    assert.deepEqual(sessions(), ['s2']);
  });

  it('replaces what it kept of a hub when the hub registers again', () => {
    links.add('h1');
    registry.change(expired);
    registry.change({ kind: 'hub', hub: h1, sessions: [sessionRecord(h1, 's3')] });
    assert.deepEqual(sessions(), ['s2', 's3']);
    unlink('h1');
    assert.deepEqual(sessions(), ['s2', 's3'], 'the registry has it again, so its link alone decides nothing');
  });

  it('ignores what the registry says about its own hub', () => {
    const [own, other] = [hubRecord('own'), hubRecord('own', 2)];
    directory.apply({ kind: 'hub', hub: own, sessions: [sessionRecord(own, 'mine')] });
    registry.snapshot({ hubs: [other], sessions: [sessionRecord(other, 'theirs')], quarantines: [] });
    registry.change({ kind: 'session', session: sessionRecord(own, 'ended') });
    registry.change({ kind: 'hub-gone', hubId: 'own', incarnation: 2, expired: true });
    assert.deepEqual(directory.hub('own'), own);
    assert.deepEqual(sessions(), ['mine', 's1', 's2']);
  });

  it('knows when the registry last answered', () => {
    assert.equal(following.lastAnswerAt, undefined);
    const before = performance.now();
    registry.answered(3);
    assert.equal(following.behind, 3);
    const at = following.lastAnswerAt ?? Number.NaN;
    assert.ok(before <= at && at <= performance.now(), `${at}`);
  });

  it('passes quarantines on to the directory', () => {
    const said = { tenant: 'default', agentId: 'agent-of-s1', reason: '', version: 1 };
    registry.snapshot({ ...snapshot, quarantines: [said] });
    assert.deepEqual(directory.quarantines.inForce(), [said]);
    registry.change({ kind: 'quarantine', quarantine: { ...said, version: 2, reason: 'another' } });
    assert.equal(directory.quarantines.of(said)?.reason, 'another');
    assert.equal(told.length, 2, 'nothing changed of the hubs');
  });
});

function member(memberId: string, since: number): Member {
  return { memberId, since, roles: ['hub'], adminAddress: `h:${since}`, host: 'h', version: '1', zone: '' };
}

const nobody = { looked() {} };

/** A registry, and a roster of it that asks every few milliseconds. */
function begun(t: TestContext, options: Partial<ConstructorParameters<typeof Roster>[1]> = {}) {
  const times = changed(DIRECTORY, { rosterMs: 5 });
  const registry = memoryRegistry();
  const own = member('a', 1);
  const roster = new Roster(registry, { own, ...nobody, ...options });
  t.after(() => {
    roster.close();
    times[Symbol.dispose]();
  });
  return { registry, roster, own };
}

/** Notes the ids of each list that a roster tells. */
function noted() {
  const told: string[] = [];
  const looked = (members: readonly Member[]) => void told.push(members.map(({ memberId }) => memberId).join());
  return { told, looked };
}

test('the roster tells each list that it asks for', { timeout: 60_000 }, async (t) => {
  const { told, looked } = noted();
  const { registry, own } = begun(t, { looked });
  registry.join(own);
  await until(() => told.includes('a'));
  registry.join(member('b', 2));
  await until(() => told.at(-1) === 'a,b');
});

test('the roster tells no list that must be incomplete, not even before its first complete one', {
  timeout: 60_000,
}, async (t) => {
  const { told, looked } = noted();
  const { registry, own } = begun(t, { looked });
  const b = { ...member('b', 2), quietMs: 0 };
  const answers = [
    [b],
    [b, { ...own, quietMs: 9_000 }],
    [b, { ...own, quietMs: 100 }],
    [b],
    [{ ...own, quietMs: 9_000 }],
  ];
  let asked = 0;
  registry.members = async () => answers[asked++] ?? [];
  await until(() => asked > answers.length);
  assert.deepEqual(told, ['b,a']);
});

test('the roster keeps the last answer while the registry is down', { timeout: 60_000 }, async (t) => {
  const { registry, roster, own } = begun(t);
  registry.join(own);
  await until(() => roster.last.length === 1);
  registry.members = () => Promise.reject(new Error('away'));
  await assert.rejects(roster.members(), /away/);
  assert.deepEqual(
    roster.last.map(({ memberId }) => memberId),
    ['a'],
  );
});

test('the roster keeps the last complete answer while the registry does not list this process', {
  timeout: 60_000,
}, async (t) => {
  const { registry, roster, own } = begun(t);
  // It asks only when the test does.
  roster.close();
  const membership = registry.join(own);
  registry.join(member('b', 2));
  const listed = async () => (await roster.members()).map(({ memberId }) => memberId);
  assert.deepEqual(await listed(), ['a', 'b']);
  await membership.close();
  await assert.rejects(listed(), /no longer renews the record of this process/);
  assert.equal(roster.last.length, 2);
  registry.join(own);
  assert.deepEqual(await listed(), ['a', 'b']);
  // No record has been renewed for a while, and that of b has expired.
  registry.members = async () => [{ ...own, quietMs: 12_000 }];
  await assert.rejects(listed(), /no longer renews/);
  assert.equal(roster.last.length, 2);
});
