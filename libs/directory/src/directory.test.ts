import assert from 'node:assert/strict';
import { test } from 'node:test';
import { best, chosen, directory, hub, nothing, session } from './testing/routing.ts';

test('the tunnels of a session stay counted when its record changes', () => {
  const one = directory([hub('h1')], [session('a')]);
  const taken = best(one, 'x');
  assert.ok(taken);
  taken.open++;
  one.apply({ kind: 'session', session: session('a', { version: 2, draining: true }) });
  assert.deepEqual([best(one, 'x')?.open, best(one, 'x')?.record.draining], [1, true]);
  taken.open--;
  assert.equal(best(one, 'x')?.open, 0);
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

test('ten thousand sessions open and close and leave nothing behind', () => {
  const all = directory([hub('h1', { zone: 'z' })], []);
  const identifiers = { ...nothing, cidr: ['10.0.0.0/8'], host: ['x'] };
  for (let i = 0; i < 10_000; i++) all.apply({ kind: 'session', session: session(`s${i}`, { identifiers }) });
  assert.equal(all.size, 10_000);
  all.apply({ kind: 'hub-gone', hubId: 'h1', incarnation: 1 });
  assert.equal(all.size, 0);
  assert.deepEqual(chosen(all, '10.1.1.1', { strategies: ['default', 'destCIDR', 'destHost'] }), []);
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
