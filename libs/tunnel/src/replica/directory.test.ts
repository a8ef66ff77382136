import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chosen, directory, hub, nothing, session } from '../testing.ts';

test('the tunnels of a session stay counted when its record changes', () => {
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

test('a watcher is called for each session that opens, changes or closes, and for no other change', () => {
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

test('a snapshot replaces all but what should be kept', () => {
  const all = directory([hub('h1'), hub('own')], [session('a'), session('mine', { hubId: 'own' })]);
  all.reset(
    { hubs: [hub('h2')], sessions: [session('b', { hubId: 'h2' })], quarantines: [] },
    (hubId) => hubId === 'own',
  );
  assert.deepEqual([...all.sessions()].map(({ sessionId }) => sessionId).sort(), ['b', 'mine']);
  assert.deepEqual([...all.hubs()].map(({ hubId }) => hubId).sort(), ['h2', 'own']);
});

test('ten thousand sessions open and close and leave nothing behind', () => {
  const all = directory([hub('h1', { zone: 'z' })], []);
  const identifiers = { ...nothing, cidr: ['10.0.0.0/8'], host: ['x'] };
  for (let i = 0; i < 10_000; i++) all.apply({ kind: 'session', session: session(`s${i}`, { identifiers }) });
  assert.equal(all.size, 10_000);
  all.apply({ kind: 'hub-gone', hubId: 'h1', incarnation: 1 });
  assert.equal(all.size, 0);
  assert.deepEqual(chosen(all, '10.1.1.1', { strategies: ['default', 'destCIDR', 'destHost'] }), []);
});

test('a snapshot replaces a later incarnation too, after a clock or the registry was set back', () => {
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
