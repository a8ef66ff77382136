import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type HubMember, MEMBERSHIP_TTL } from '@isthmus/transport';
import { Membership } from './membership.ts';

function hub(hubId: string, more: Partial<HubMember> = {}): HubMember {
  return { hubId, address: `${hubId}:8091`, zone: '', draining: false, generation: 1, ...more };
}

function told(...hubs: HubMember[]) {
  return { type: 'membership', current: true, hubs } as const;
}

function change(changed: HubMember[], gone: string[] = [], current = true) {
  return { type: 'membership-change', current, changed, gone } as const;
}

test('changes are applied to what the same link told, and a new list replaces it', () => {
  const membership = new Membership(() => 0);
  const link = membership.informant();
  link.hear(told(hub('a'), hub('b')));
  link.hear(change([hub('b', { draining: true }), hub('c')], ['a']));
  assert.deepEqual(membership.hubs, [hub('b', { draining: true }), hub('c')]);
  link.hear(told(hub('d')));
  assert.deepEqual(membership.hubs, [hub('d')]);
});

test('of what links say about one hub the later generation holds, and that it drains', () => {
  const membership = new Membership(() => 0);
  const [left, right] = [membership.informant(), membership.informant()];
  left.hear(told(hub('a'), hub('b', { generation: 2 }), hub('c')));
  right.hear(told(hub('a', { draining: true }), hub('b'), hub('d')));
  assert.deepEqual(membership.hubs, [hub('a', { draining: true }), hub('b', { generation: 2 }), hub('c'), hub('d')]);
});

test('what is not renewed in time is not believed any more', () => {
  let now = 0;
  const membership = new Membership(() => now);
  const link = membership.informant();
  link.hear(told(hub('a')));
  now = MEMBERSHIP_TTL - 1;
  link.hear(change([]));
  now = 2 * MEMBERSHIP_TTL - 2;
  assert.deepEqual([membership.hubs, membership.current], [[hub('a')], true]);
  now++;
  assert.deepEqual([membership.hubs, membership.current, membership.away], [[], false, true]);
  assert.deepEqual(membership.candidates, [hub('a')], 'an address may still be right');
  link.hear(change([hub('b')]));
  assert.deepEqual(membership.hubs, [hub('a'), hub('b')]);
});

test('where to connect without a link is what the last one said, and after its time also of hubs that drained', () => {
  let now = 0;
  const membership = new Membership(() => now);
  const [left, right] = [membership.informant(), membership.informant()];
  left.hear(told(hub('a'), hub('b')));
  right.hear(told(hub('b'), hub('c', { draining: true })));
  left.end();
  assert.deepEqual(membership.candidates, [hub('b'), hub('c', { draining: true })]);
  right.end();
  assert.deepEqual([membership.hubs, membership.current, membership.stale], [[], false, false]);
  const silent = membership.informant();
  silent.begin();
  silent.end();
  membership.informant().end();
  assert.deepEqual(membership.candidates, [hub('b'), hub('c', { draining: true })]);
  now = MEMBERSHIP_TTL;
  assert.deepEqual([membership.candidates, membership.stale], [[hub('b'), hub('c')], true]);
});

test('a link that is there and has not told yet counts as one whose registry does not answer', () => {
  let now = 0;
  const membership = new Membership(() => now);
  const [old, fresh] = [membership.informant(), membership.informant()];
  old.hear(told(hub('a')));
  fresh.begin();
  assert.deepEqual([membership.current, membership.away], [false, false]);
  fresh.hear(told(hub('a')));
  fresh.begin();
  assert.deepEqual([membership.current, membership.away], [true, false]);
  fresh.hear(change([], [], false));
  assert.deepEqual([membership.current, membership.away], [false, true]);
  fresh.end();
  membership.informant().begin();
  now = MEMBERSHIP_TTL - 1;
  old.hear(change([]));
  now = MEMBERSHIP_TTL;
  assert.deepEqual([membership.current, membership.away], [false, true], 'it never told');
});

test('it is current when the registry answers every hub that is connected', () => {
  const membership = new Membership(() => 0);
  const [left, right] = [membership.informant(), membership.informant()];
  assert.equal(membership.current, false);
  left.hear(told(hub('a')));
  assert.equal(membership.current, true);
  right.hear(change([], [], false));
  assert.equal(membership.current, false);
  right.end();
  assert.equal(membership.current, true);
});

test('a hub that tells of ever more hubs is not remembered without bound', () => {
  const membership = new Membership(() => 0);
  const link = membership.informant();
  for (let index = 0; index < 5000; index++) link.hear(change([hub(`h${index}`)]));
  assert.equal(membership.hubs.length, 1024);
});
