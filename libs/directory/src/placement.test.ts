import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AgentIdentifiers } from '@isthmus/tunnel';
import { type Strategy, serves } from './placement.ts';
import { type Ask, best, chosen, directory, hub, nothing, session } from './testing/routing.ts';

const identified = directory(
  [hub('h1')],
  [
    session('any'),
    session('route', { identifiers: { ...nothing, defaultRoute: true } }),
    session('name', { identifiers: { ...nothing, host: ['Db.Internal'], ipv4: ['10.0.0.7'], ipv6: ['2001:DB8::7'] } }),
    session('wide', { identifiers: { ...nothing, cidr: ['10.0.0.0/8', '2001:db8::/32'] } }),
    session('narrow', { identifiers: { ...nothing, cidr: ['10.1.0.0/16', '2001:db8:1::/48'] } }),
    session('odd', { identifiers: { ...nothing, cidr: ['10.1.2.192/27'] } }),
  ],
);

const lookups: [strategies: Strategy[], host: string, expected: string[]][] = [
  [['default'], 'anything', ['any', 'name', 'narrow', 'odd', 'route', 'wide']],
  [['defaultRoute'], 'anything', ['route']],
  [['destHost'], 'db.internal', ['name']],
  [['destHost'], 'DB.INTERNAL.', ['name']],
  [['destHost'], '10.0.0.7', ['name']],
  [['destHost'], '::ffff:10.0.0.7', ['name']],
  [['destHost'], '2001:db8:0:0::7', ['name']],
  [['destHost'], '10.0.0.8', []],
  [['destCIDR'], '10.9.9.9', ['wide']],
  [['destCIDR'], '10.1.9.9', ['narrow']],
  [['destCIDR'], '10.1.2.200', ['odd']],
  [['destCIDR'], '10.1.2.191', ['narrow']],
  [['destCIDR'], '2001:db8:1::5', ['narrow']],
  [['destCIDR'], '2001:db8:2::5', ['wide']],
  [['destCIDR'], '192.168.0.1', []],
  [['destCIDR'], 'db.internal', []],
  [['destHost', 'destCIDR', 'defaultRoute'], '10.0.0.7', ['name']],
  [['destHost', 'destCIDR', 'defaultRoute'], '10.9.9.9', ['wide']],
  [['destHost', 'destCIDR', 'defaultRoute'], 'example.org', ['route']],
];
for (const [strategies, host, expected] of lookups) {
  test(`${strategies.join(',')} sends ${host} to ${expected.join(', ') || 'nobody'}`, () => {
    assert.deepEqual(chosen(identified, host, { strategies }), expected);
  });
}

test('a tried session is skipped for the next prefix, then for the next strategy', () => {
  const ask: Ask = { strategies: ['destCIDR', 'defaultRoute'] };
  assert.deepEqual(chosen(identified, '10.1.2.200', { ...ask, excluded: ['odd'] }), ['narrow']);
  assert.deepEqual(chosen(identified, '10.1.2.200', { ...ask, excluded: ['odd', 'narrow', 'wide'] }), ['route']);
});

test('a tenant never gets the session of another', () => {
  const both = directory([hub('h1')], [session('mine'), session('theirs', { tenant: 'other' })]);
  assert.deepEqual(chosen(both, 'x'), ['mine']);
  assert.deepEqual(chosen(both, 'x', { tenant: 'other' }), ['theirs']);
  assert.deepEqual(chosen(both, 'x', { tenant: 'nobody' }), []);
});

test('the own zone comes first, then others, then draining sessions', () => {
  const hubs = [hub('near', { zone: 'a' }), hub('far', { zone: 'b' }), hub('going', { zone: 'a', draining: true })];
  const all = directory(hubs, [
    session('n', { hubId: 'near' }),
    session('f', { hubId: 'far' }),
    session('g', { hubId: 'going' }),
  ]);
  assert.deepEqual(chosen(all, 'x', { zone: 'a' }), ['n']);
  assert.deepEqual(chosen(all, 'x', { zone: 'a', excluded: ['n'] }), ['f']);
  assert.deepEqual(chosen(all, 'x', { zone: 'a', excluded: ['n', 'f'] }), ['g']);
  assert.deepEqual(chosen(all, 'x', { zone: 'elsewhere' }), ['f', 'n']);
});

test('the hub in this process comes first, then the own zone, then other zones, then draining sessions', () => {
  const hubs = [hub('own', { zone: 'b' }), hub('near', { zone: 'a' }), hub('far', { zone: 'b' })];
  const sessions = [session('n', { hubId: 'near' }), session('f', { hubId: 'far' })];
  const all = directory(hubs, [...sessions, session('o', { hubId: 'own' }), session('p', { hubId: 'own' })], 'own');
  assert.deepEqual(chosen(all, 'x', { zone: 'a' }), ['o', 'p']);
  assert.deepEqual(chosen(all, 'x', { zone: 'a', excluded: ['o', 'p'] }), ['n']);
  assert.deepEqual(chosen(all, 'x', { zone: 'a', excluded: ['o', 'p', 'n'] }), ['f']);
  all.apply({ kind: 'hub', hub: hub('own', { zone: 'b', draining: true }) });
  assert.deepEqual(chosen(all, 'x', { zone: 'a' }), ['n']);
  all.apply({ kind: 'hub', hub: hub('own', { zone: 'b' }) });
  for (const sessionId of ['o', 'p'])
    all.apply({ kind: 'session-gone', sessionId, hubId: 'own', incarnation: 1, version: 2 });
  assert.deepEqual(chosen(all, 'x', { zone: 'a' }), ['n']);
});

test('an agent that is much too busy at the own hub loses its preference, even if all its tunnels use another hub', () => {
  const all = directory(
    [hub('own'), hub('h1')],
    [session('o', { hubId: 'own', agentId: 'a' }), session('same', { agentId: 'a' }), session('b')],
    'own',
  );
  const open = (counts: Record<string, number>) => {
    for (const each of all.of('default')) each.open = counts[each.record.sessionId] ?? 0;
  };
  open({ o: 1001, b: 600 });
  assert.deepEqual(chosen(all, 'x'), ['o']);
  open({ o: 1001, same: 500, b: 600 });
  assert.deepEqual(chosen(all, 'x'), ['b']);
  open({ o: 5000, b: 0 });
  assert.deepEqual(chosen(all, 'x', { excluded: ['b'] }), ['o']);
});

test('sessions of a hub that starts to drain lose their preference, and regain it if the hub stops draining', () => {
  const all = directory([hub('h1'), hub('h2')], [session('a'), session('b', { hubId: 'h2' })]);
  all.apply({ kind: 'hub', hub: hub('h1', { draining: true }) });
  assert.deepEqual(chosen(all, 'x'), ['b']);
  all.apply({ kind: 'hub', hub: hub('h1') });
  assert.deepEqual(chosen(all, 'x'), ['a', 'b']);
});

test('sessions of a silent hub are chosen last and told to watchers, until it is heard again', () => {
  const all = directory([hub('h1'), hub('h2')], [session('a'), session('b', { hubId: 'h2' })]);
  const changed: string[] = [];
  all.watch({ came() {}, went() {}, changed: ({ sessionId }) => changed.push(sessionId) });
  for (let times = 0; times < 2; times++) all.suspect('h1', true);
  assert.deepEqual([chosen(all, 'x'), changed], [['b'], ['a']]);
  assert.deepEqual(chosen(all, 'x', { excluded: ['b'] }), ['a'], 'no other is left');
  for (let times = 0; times < 2; times++) all.suspect('h1', false);
  assert.deepEqual(
    [chosen(all, 'x'), changed],
    [
      ['a', 'b'],
      ['a', 'a'],
    ],
  );
});

test('all sessions of a draining hub are chosen last', () => {
  const three = directory([hub('h1'), hub('h2')], [session('a'), session('b'), session('c', { hubId: 'h2' })]);
  three.apply({ kind: 'hub', hub: hub('h1', { draining: true }) });
  assert.deepEqual(chosen(three, 'x'), ['c']);
  assert.deepEqual(chosen(three, 'x', { excluded: ['c'] }), ['a', 'b']);
});

test('of two equal sessions, the less busy one is chosen', () => {
  const two = directory([hub('h1')], [session('a'), session('b')]);
  const busy = best(two, 'x', { excluded: ['b'] });
  assert.ok(busy);
  busy.open = 5;
  assert.deepEqual(chosen(two, 'x'), ['b']);
});

const NONE: AgentIdentifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };

test('an agent serves a host by its addresses, names, prefixes or default route, as dials find it', () => {
  const served: readonly [of: Partial<AgentIdentifiers>, host: string, expected: boolean][] = [
    [{}, '10.0.0.1', false],
    [{ defaultRoute: true }, 'anything', true],
    [{ ipv4: ['10.0.0.1'] }, '10.0.0.1', true],
    [{ ipv4: ['10.0.0.1'] }, '10.0.0.2', false],
    [{ ipv6: ['fd00::1'] }, 'fd00:0::1', true],
    [{ host: ['Node-1.example'] }, 'node-1.example', true],
    [{ cidr: ['10.1.0.0/16', 'fd00::/8'] }, '10.1.2.3', true],
    [{ cidr: ['10.1.0.0/16', 'fd00::/8'] }, 'fd12::1', true],
    [{ cidr: ['10.1.0.0/16'] }, '10.2.0.1', false],
    [{ cidr: ['10.1.0.0/16,10.2.0.0/16', '10.3.0.0/16'] }, '10.1.0.1', false],
    [{ cidr: ['10.1.0.0/16,10.2.0.0/16', '10.3.0.0/16'] }, '10.3.0.1', true],
    [{ cidr: ['10.1.0.0/16'] }, 'node-1.example', false],
  ];
  for (const [of, host, expected] of served) assert.equal(serves({ ...NONE, ...of }, host), expected, host);
});
