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
  assert.deepEqual([membership.hubs, membership.current], [[], false]);
  link.hear(change([hub('b')]));
  assert.deepEqual(membership.hubs, [hub('a'), hub('b')]);
});

test('what the last link said holds for the rest of its time, and only while no link says more', () => {
  let now = 0;
  const membership = new Membership(() => now);
  const [left, right] = [membership.informant(), membership.informant()];
  left.hear(told(hub('a'), hub('b')));
  right.hear(told(hub('b')));
  left.end();
  assert.deepEqual(membership.hubs, [hub('b')]);
  right.end();
  assert.deepEqual([membership.hubs, membership.current], [[hub('b')], false]);
  membership.informant().end();
  assert.deepEqual(membership.hubs, [hub('b')]);
  now = MEMBERSHIP_TTL;
  assert.deepEqual(membership.hubs, []);
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
