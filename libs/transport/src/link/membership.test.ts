import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_HUBS_IN_MESSAGE, readMembership } from './membership.ts';

const HUB = { hubId: 'h1', address: '127.0.0.1:8091', zone: 'a', draining: false, generation: 7 };

test('a list and a change are read, and what they carry beside is left out', () => {
  const list = { type: 'membership', current: true, hubs: [{ ...HUB, more: 'x'.repeat(1000) }], more: 1 };
  assert.deepEqual(readMembership(list), { type: 'membership', current: true, hubs: [HUB] });
  const change = { type: 'membership-change', current: false, changed: [HUB], gone: ['h2'] };
  assert.deepEqual(readMembership(change), change);
  const beat = { type: 'membership-change', current: true, changed: [], gone: [] };
  assert.deepEqual(readMembership(beat), beat);
});

test('what another version may leave out is no reason to refuse the rest', () => {
  const { generation: _, ...hub } = HUB;
  const list = { type: 'membership', current: true, hubs: [{ ...HUB, generation: 0 }] };
  assert.deepEqual(readMembership({ type: 'membership', hubs: [hub] }), list);
  const change = { type: 'membership-change', current: true, changed: [], gone: [] };
  assert.deepEqual(readMembership({ type: 'membership-change', changed: [], gone: [] }), change);
});

test('addresses are empty, or a host and a port', () => {
  for (const address of ['', 'hub-1.hubs.svc:8091', '[::1]:8091', '10.0.0.1:1']) {
    assert.ok(readMembership({ type: 'membership', current: true, hubs: [{ ...HUB, address }] }), address);
  }
  for (const address of ['hub', 'hub:0', 'hub:65536', 'http://hub:80', 'a b:80', 'user@hub:80', 'hub:80/path', 5]) {
    const read = readMembership({ type: 'membership', current: true, hubs: [{ ...HUB, address }] });
    assert.equal(read, undefined, String(address));
  }
});

const MANY = Array.from({ length: MAX_HUBS_IN_MESSAGE + 1 }, (_, index) => ({ ...HUB, hubId: `h${index}` }));

const BAD: readonly [name: string, message: Readonly<Record<string, unknown>>][] = [
  ['no list', { type: 'membership', current: true }],
  ['a list that is a little current', { type: 'membership', current: 1, hubs: [] }],
  ['no list of what is gone', { type: 'membership-change', current: true, changed: [] }],
  ['another type', { type: 'membership-later', current: true, hubs: [] }],
  ['a hub that is none', { type: 'membership', current: true, hubs: [null] }],
  ['too many hubs', { type: 'membership', current: true, hubs: MANY }],
  ['too many that are gone', { type: 'membership-change', current: true, changed: [], gone: MANY.map(() => 'x') }],
  ['a gone hub without an id', { type: 'membership-change', current: true, changed: [], gone: [''] }],
  ['a hub without an id', { type: 'membership', current: true, hubs: [{ ...HUB, hubId: '' }] }],
  ['a hub of a long id', { type: 'membership', current: true, hubs: [{ ...HUB, hubId: 'h'.repeat(300) }] }],
  ['a hub of a long zone', { type: 'membership', current: true, hubs: [{ ...HUB, zone: 'z'.repeat(300) }] }],
  ['a hub that drains a little', { type: 'membership', current: true, hubs: [{ ...HUB, draining: 1 }] }],
  ['a hub of no generation', { type: 'membership', current: true, hubs: [{ ...HUB, generation: null }] }],
  ['a hub of generation 1e300', { type: 'membership', current: true, hubs: [{ ...HUB, generation: 1e300 }] }],
];

for (const [name, message] of BAD) {
  test(`${name} is no membership`, () => assert.equal(readMembership(message), undefined));
}
