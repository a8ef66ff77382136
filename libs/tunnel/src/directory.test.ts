import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Directory } from './directory.ts';
import type { AgentIdentifiers, HubRecord, SessionRecord } from './records.ts';
import type { Strategy } from './strategies.ts';

const nothing: AgentIdentifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };

function hub(hubId: string, more: Partial<HubRecord> = {}): HubRecord {
  return { hubId, incarnation: 1, peerAddress: '', agentAddress: '', zone: '', draining: false, ...more };
}

function session(sessionId: string, more: Partial<SessionRecord> = {}): SessionRecord {
  return {
    ...{ sessionId, tenant: 'default', agentId: sessionId, identifiers: nothing, hubId: 'h1', incarnation: 1 },
    ...{ version: 1, draining: false, since: 0 },
    ...more,
  };
}

function directory(hubs: HubRecord[], sessions: SessionRecord[]): Directory {
  const all = new Directory();
  all.reset({ hubs, sessions, quarantines: [] });
  return all;
}

interface Ask {
  tenant?: string;
  strategies?: Strategy[];
  zone?: string;
  excluded?: string[];
}

/** Every session that a hundred choices give. */
function chosen(
  from: Directory,
  host: string,
  { tenant = 'default', strategies = ['default'], zone = '', excluded = [] }: Ask = {},
) {
  const found = new Set<string>();
  for (let round = 0; round < 100; round++) {
    const route = from.choose({ tenant, host, strategies, zone, excluded: new Set(excluded) });
    if (route) found.add(route.record.sessionId);
  }
  return [...found].sort();
}

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

test('a tried session is passed over: the next prefix, then the next strategy', () => {
  const ask: Ask = { strategies: ['destCIDR', 'defaultRoute'] };
  assert.deepEqual(chosen(identified, '10.1.2.200', { ...ask, excluded: ['odd'] }), ['narrow']);
  assert.deepEqual(chosen(identified, '10.1.2.200', { ...ask, excluded: ['odd', 'narrow', 'wide'] }), ['route']);
});

test('tenants never meet', () => {
  const both = directory([hub('h1')], [session('mine'), session('theirs', { tenant: 'other' })]);
  assert.deepEqual(chosen(both, 'x'), ['mine']);
  assert.deepEqual(chosen(both, 'x', { tenant: 'other' }), ['theirs']);
  assert.deepEqual(chosen(both, 'x', { tenant: 'nobody' }), []);
});

test('the own zone comes first, then others, then what drains', () => {
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

test('a hub that begins to drain takes its sessions out of the first choice, and back when it stays', () => {
  const all = directory([hub('h1'), hub('h2')], [session('a'), session('b', { hubId: 'h2' })]);
  all.apply({ kind: 'hub', hub: hub('h1', { draining: true }) });
  assert.deepEqual(chosen(all, 'x'), ['b']);
  all.apply({ kind: 'hub', hub: hub('h1') });
  assert.deepEqual(chosen(all, 'x'), ['a', 'b']);
});

test('a hub with several sessions begins to drain, and all of them step back', () => {
  const three = directory([hub('h1'), hub('h2')], [session('a'), session('b'), session('c', { hubId: 'h2' })]);
  three.apply({ kind: 'hub', hub: hub('h1', { draining: true }) });
  assert.deepEqual(chosen(three, 'x'), ['c']);
  assert.deepEqual(chosen(three, 'x', { excluded: ['c'] }), ['a', 'b']);
});

test('among equals the less busy of two is taken', () => {
  const two = directory([hub('h1')], [session('a'), session('b')]);
  const busy = two.choose({
    tenant: 'default',
    host: 'x',
    strategies: ['default'],
    zone: '',
    excluded: new Set(['b']),
  });
  assert.ok(busy);
  busy.open = 5;
  assert.deepEqual(chosen(two, 'x'), ['b']);
});

test('tunnels through a session are counted on when its record changes', () => {
  const one = directory([hub('h1')], [session('a')]);
  const route = () =>
    one.choose({ tenant: 'default', host: 'x', strategies: ['default'], zone: '', excluded: new Set() });
  const taken = route();
  assert.ok(taken);
  taken.open++;
  one.apply({ kind: 'session', session: session('a', { version: 2, draining: true }) });
  assert.deepEqual([route()?.open, route()?.record.draining], [1, true]);
  taken.open--;
  assert.equal(route()?.open, 0);
});

test('a watcher hears of each session that comes, changes or goes, and of no other change', () => {
  const all = directory([hub('h1')], [session('a')]);
  const told: string[] = [];
  const end = all.watch({
    came: ({ sessionId, version }) => told.push(`${sessionId}${version} came`),
    went: ({ sessionId, version }) => told.push(`${sessionId}${version} went`),
  });
  const said = () => told.splice(0);
  assert.deepEqual(said(), ['a1 came']);
  for (let times = 0; times < 2; times++) all.apply({ kind: 'session', session: session('b') });
  all.apply({ kind: 'session', session: session('b', { version: 2 }) });
  assert.deepEqual(said(), ['b1 came', 'b1 went', 'b2 came']);
  all.apply({ kind: 'hub', hub: hub('h1', { draining: true }) });
  assert.deepEqual(said(), []);
  all.forget('a');
  all.apply({ kind: 'hub-gone', hubId: 'h1', incarnation: 1 });
  assert.deepEqual(said(), ['a1 went', 'b2 went']);
  end();
  all.apply({ kind: 'session', session: session('c') });
  assert.deepEqual(said(), []);
});

test('a change applied twice or late changes nothing', () => {
  const all = directory([hub('h1')], []);
  all.apply({ kind: 'session', session: session('s', { version: 3 }) });
  all.apply({ kind: 'session', session: session('s', { version: 2, draining: true }) });
  all.apply({ kind: 'session-gone', sessionId: 's', hubId: 'h1', incarnation: 1, version: 2 });
  assert.deepEqual([...all.sessions()], [session('s', { version: 3 })]);
  for (let times = 0; times < 2; times++) {
    all.apply({ kind: 'session-gone', sessionId: 's', hubId: 'h1', incarnation: 1, version: 4 });
    assert.equal(all.size, 0);
  }
});

test('a late write of a dead incarnation loses, whatever it says', () => {
  const all = directory([hub('h1')], [session('old')]);
  all.apply({ kind: 'hub', hub: hub('h1', { incarnation: 2 }) });
  assert.equal(all.size, 0, 'the new incarnation starts without sessions');
  all.apply({ kind: 'session', session: session('old', { version: 99 }) });
  all.apply({ kind: 'hub', hub: hub('h1', { incarnation: 1, draining: true }) });
  all.apply({ kind: 'hub-gone', hubId: 'h1', incarnation: 1 });
  assert.equal(all.size, 0);
  assert.deepEqual(all.hub('h1'), hub('h1', { incarnation: 2 }));
  all.apply({ kind: 'hub-gone', hubId: 'h1', incarnation: 2 });
  assert.equal(all.hub('h1'), undefined);
});

test('a snapshot replaces all but what is kept', () => {
  const all = directory([hub('h1'), hub('own')], [session('a'), session('mine', { hubId: 'own' })]);
  all.reset(
    { hubs: [hub('h2')], sessions: [session('b', { hubId: 'h2' })], quarantines: [] },
    (hubId) => hubId === 'own',
  );
  assert.deepEqual([...all.sessions()].map(({ sessionId }) => sessionId).sort(), ['b', 'mine']);
  assert.deepEqual([...all.hubs()].map(({ hubId }) => hubId).sort(), ['h2', 'own']);
});

test('ten thousand sessions come and go without a trace', () => {
  const all = directory([hub('h1', { zone: 'z' })], []);
  const identifiers = { ...nothing, cidr: ['10.0.0.0/8'], host: ['x'] };
  for (let i = 0; i < 10_000; i++) all.apply({ kind: 'session', session: session(`s${i}`, { identifiers }) });
  assert.equal(all.size, 10_000);
  all.apply({ kind: 'hub-gone', hubId: 'h1', incarnation: 1 });
  assert.equal(all.size, 0);
  assert.deepEqual(chosen(all, '10.1.1.1', { strategies: ['default', 'destCIDR', 'destHost'] }), []);
});

test('a snapshot replaces a later incarnation too: a clock, or the registry, was set back', () => {
  const all = directory([hub('h1', { incarnation: 200 })], [session('old', { incarnation: 200 })]);
  all.reset({
    hubs: [hub('h1', { incarnation: 100 })],
    sessions: [session('new', { incarnation: 100 })],
    quarantines: [],
  });
  assert.equal(all.hub('h1')?.incarnation, 100);
  assert.deepEqual(
    [...all.sessions()].map(({ sessionId }) => sessionId),
    ['new'],
  );
});

test('sessions are counted by tenant', () => {
  const all = directory([hub('h1')], [session('a'), session('b'), session('c', { tenant: 'other' })]);
  assert.deepEqual([...all.tenants()].sort(), [
    ['default', 2],
    ['other', 1],
  ]);
  assert.deepEqual([all.sessionsOf('default'), all.sessionsOf('nobody')], [2, 0]);
  all.forget('c');
  assert.deepEqual([...all.tenants()], [['default', 2]]);
});

const said = (agentId: string, version: number, reason?: string, tenant = 'default') =>
  ({ kind: 'quarantine', quarantine: { tenant, agentId, version, ...(reason !== undefined && { reason }) } }) as const;

test('an agent in quarantine is not chosen, not even as the last resort, until it is let out', () => {
  const all = directory([hub('h1'), hub('h2')], [session('a'), session('a2', { agentId: 'a' }), session('b')]);
  all.apply(said('a', 1, 'leaks'));
  assert.deepEqual(chosen(all, 'x'), ['b']);
  assert.deepEqual(chosen(all, 'x', { excluded: ['b'] }), []);
  assert.deepEqual(all.quarantined(), [said('a', 1, 'leaks').quarantine]);
  assert.equal(all.quarantineOf({ tenant: 'default', agentId: 'a' })?.reason, 'leaks');
  assert.equal(all.quarantineOf({ tenant: 'default', agentId: 'b' }), undefined);
  assert.deepEqual([all.size, all.sessionsOf('default')], [3, 3], 'its sessions are there all the same');
  all.apply(said('a', 2));
  assert.deepEqual(chosen(all, 'x'), ['a', 'a2', 'b']);
  assert.deepEqual(all.quarantined(), []);
});

test('a session that comes, changes or drains is in quarantine if its agent is, and no other tenant is', () => {
  const all = directory([hub('h1')], []);
  all.apply(said('a', 1, ''));
  all.apply({ kind: 'session', session: session('a') });
  all.apply({ kind: 'session', session: session('a', { version: 2, draining: true }) });
  all.apply({ kind: 'session', session: session('other', { agentId: 'a', tenant: 'other' }) });
  all.apply({ kind: 'hub', hub: hub('h1', { draining: true, zone: 'z' }) });
  assert.deepEqual(chosen(all, 'x'), []);
  assert.deepEqual(chosen(all, 'x', { tenant: 'other' }), ['other']);
  all.apply(said('a', 2));
  assert.deepEqual(chosen(all, 'x'), ['a']);
});

test('of two words about an agent the later holds, in whatever order they come', () => {
  const all = directory([hub('h1')], [session('a')]);
  all.apply(said('a', 5));
  all.apply(said('a', 4, 'late'));
  assert.deepEqual(chosen(all, 'x'), ['a']);
  const quarantines = [said('a', 6, 'again').quarantine];
  for (let times = 0; times < 2; times++) {
    all.reset({ hubs: [hub('h1')], sessions: [session('a')], quarantines });
    assert.deepEqual([chosen(all, 'x'), all.quarantined()], [[], quarantines]);
  }
});

test('who waits for a session hears of an agent that is let out, and not of one that comes in quarantine', () => {
  const all = directory([hub('h1')], []);
  const heard: string[] = [];
  all.onArrival('default', (hubId) => heard.push(hubId));
  all.apply(said('a', 1, ''));
  all.apply({ kind: 'session', session: session('a') });
  assert.deepEqual(heard, []);
  all.apply(said('a', 2, 'another reason'));
  assert.deepEqual(heard, []);
  all.apply(said('a', 3));
  assert.deepEqual(heard, ['h1']);
});

test('agents in quarantine are named for the destinations that they serve', () => {
  const cidr = { ...nothing, cidr: ['10.0.0.0/8'] };
  const all = directory([hub('h1')], [session('a', { identifiers: cidr }), session('b'), session('c')]);
  for (const agentId of ['a', 'b', 'c']) all.apply(said(agentId, 1, ''));
  const named = (host: string, strategies: Strategy[]) => all.quarantinedFor({ tenant: 'default', host, strategies });
  assert.deepEqual(named('10.1.1.1', ['destCIDR']), ['a']);
  assert.deepEqual(named('11.1.1.1', ['destCIDR']), []);
  assert.deepEqual(named('x', ['default']), ['a', 'b']);
  assert.deepEqual(all.quarantinedFor({ tenant: 'other', host: 'x', strategies: ['default'] }), []);
  for (const agentId of ['a', 'b', 'c']) all.forget(agentId);
  assert.deepEqual(named('10.1.1.1', ['destCIDR', 'default']), []);
});
