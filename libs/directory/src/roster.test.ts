import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { memoryRegistry } from './memory.ts';
import type { Member } from './records.ts';
import { Roster } from './roster.ts';

function member(memberId: string, since: number): Member {
  return { memberId, since, roles: ['hub'], adminAddress: `h:${since}`, host: 'h', version: '1', zone: '' };
}

/** A registry, and the signal that ends what follows it, with the test. */
function begun(t: TestContext) {
  const stop = new AbortController();
  t.after(() => stop.abort());
  return { registry: memoryRegistry(), signal: stop.signal };
}

/** Notes the ids of each list that a roster tells. */
function noted() {
  const told: string[] = [];
  const looked = (members: readonly Member[]) => void told.push(members.map(({ memberId }) => memberId).join());
  return { told, looked };
}

test('the roster reports another process with the same id, and when it is gone', { timeout: 60_000 }, async (t) => {
  const { registry, signal } = begun(t);
  const own = member('a', 1);
  registry.join(own);
  registry.join(member('b', 2));
  const told: number[][] = [];
  const namesakes = (others: readonly Member[]) => void told.push(others.map(({ since }) => since));
  new Roster(registry, { own, namesakes, signal, every: 5, echo: 0 });
  const other = registry.join(member('a', 3));
  await until(() => told.length === 1);
  await other.close();
  await until(() => told.length === 2);
  assert.deepEqual(told, [[3], []]);
});

test('the roster tells each list that it asks for', { timeout: 60_000 }, async (t) => {
  const { registry, signal } = begun(t);
  registry.join(member('a', 1));
  const { told, looked } = noted();
  new Roster(registry, { own: member('a', 1), namesakes() {}, looked, signal, every: 5, echo: 0 });
  await until(() => told.includes('a'));
  registry.join(member('b', 2));
  await until(() => told.at(-1) === 'a,b');
});

test('the roster tells no list that must be incomplete, not even before its first complete one', {
  timeout: 60_000,
}, async (t) => {
  const { registry, signal } = begun(t);
  const own = member('a', 1);
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
  const { told, looked } = noted();
  new Roster(registry, { own, namesakes() {}, looked, signal, every: 1, echo: 0 });
  await until(() => asked > answers.length);
  assert.deepEqual(told, ['b,a']);
});

test('the roster keeps the last answer while the registry is down', { timeout: 60_000 }, async (t) => {
  const { registry, signal } = begun(t);
  registry.join(member('a', 1));
  const roster = new Roster(registry, { own: member('a', 1), namesakes() {}, signal, every: 5, echo: 0 });
  await until(() => roster.last.length === 1);
  registry.members = () => Promise.reject(new Error('away'));
  await assert.rejects(roster.members(signal), /away/);
  assert.deepEqual(
    roster.last.map(({ memberId }) => memberId),
    ['a'],
  );
});

test('the roster keeps the last complete answer while the registry does not list this process', {
  timeout: 60_000,
}, async (t) => {
  const { registry, signal } = begun(t);
  const own = member('a', 1);
  const membership = registry.join(own);
  registry.join(member('b', 2));
  const roster = new Roster(registry, { own, namesakes() {}, signal, every: 60_000, echo: 0 });
  const listed = async () => (await roster.members(signal)).map(({ memberId }) => memberId);
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
