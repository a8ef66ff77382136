import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Strategy } from './placement.ts';
import { route } from './route.ts';
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

const said = (agentId: string, version: number, reason?: string, tenant = 'default') =>
  ({ kind: 'quarantine', quarantine: { tenant, agentId, version, ...(reason !== undefined && { reason }) } }) as const;

test('an agent in quarantine is not chosen, not even as the last resort, until it is released', () => {
  const all = directory([hub('h1'), hub('h2')], [session('a'), session('a2', { agentId: 'a' }), session('b')]);
  all.apply(said('a', 1, 'leaks'));
  assert.deepEqual(chosen(all, 'x'), ['b']);
  assert.deepEqual(chosen(all, 'x', { excluded: ['b'] }), []);
  assert.deepEqual(all.quarantines.inForce(), [said('a', 1, 'leaks').quarantine]);
  assert.equal(all.quarantines.of({ tenant: 'default', agentId: 'a' })?.reason, 'leaks');
  assert.equal(all.quarantines.of({ tenant: 'default', agentId: 'b' }), undefined);
  assert.deepEqual([all.size, all.sessionsOf('default')], [3, 3], 'its sessions are there all the same');
  all.apply(said('a', 2));
  assert.deepEqual(chosen(all, 'x'), ['a', 'a2', 'b']);
  assert.deepEqual(all.quarantines.inForce(), []);
});

test('a session that opens, changes or drains is in quarantine if its agent is; other tenants are not affected', () => {
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

test('an agent does not leave quarantine by another id: the name in its credential counts too', () => {
  const all = directory(
    [hub('h1')],
    [session('s1', { agentId: 'a', credential: 'a' }), session('s2', { agentId: 'b' })],
  );
  all.apply(said('a', 1, 'leaks'));
  all.apply({ kind: 'session', session: session('s3', { agentId: 'a-again', credential: 'a' }) });
  assert.deepEqual(chosen(all, 'x'), ['s2']);
  all.apply(said('a', 2));
  assert.deepEqual(chosen(all, 'x'), ['s1', 's2', 's3']);
  all.apply(said('a', 3, 'leaks again'));
  assert.deepEqual(chosen(all, 'x'), ['s2']);
});

test('the latest statement about an agent counts, in whatever order the statements arrive', () => {
  const all = directory([hub('h1')], [session('a')]);
  all.apply(said('a', 5));
  all.apply(said('a', 4, 'late'));
  assert.deepEqual(chosen(all, 'x'), ['a']);
  const quarantines = [said('a', 6, 'again').quarantine];
  for (let times = 0; times < 2; times++) {
    all.reset({ hubs: [hub('h1')], sessions: [session('a')], quarantines });
    assert.deepEqual([chosen(all, 'x'), all.quarantines.inForce()], [[], quarantines]);
  }
});

test('a waiting dial is woken by the release of an agent, not by an agent that arrives in quarantine', () => {
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

test('a waiting dial is woken when a silent hub is heard again or stays, not when it falls silent or drains', () => {
  const all = directory([hub('h1')], [session('a'), session('b')]);
  const heard: string[] = [];
  all.onArrival('default', (hubId) => heard.push(hubId));
  all.suspect('h1', true);
  all.apply({ kind: 'hub', hub: hub('h1', { draining: true }) });
  assert.deepEqual(heard, []);
  all.apply({ kind: 'hub', hub: hub('h1') });
  assert.deepEqual(heard, []);
  all.suspect('h1', false);
  assert.deepEqual(heard, ['h1', 'h1']);
});

test('agents in quarantine are listed for the destinations that they serve', () => {
  const cidr = { ...nothing, cidr: ['10.0.0.0/8'] };
  const all = directory([hub('h1')], [session('a', { identifiers: cidr }), session('b'), session('c')]);
  for (const agentId of ['a', 'b', 'c']) all.apply(said(agentId, 1, ''));
  const named = (host: string, strategies: Strategy[], tenant = 'default') =>
    [
      ...route(
        { directory: all, strategies, zone: '', nextHop: () => undefined, suspects: new Set() },
        { tenant, host },
      ),
    ]
      .filter(({ leftOut }) => leftOut?.why === 'quarantined')
      .map(({ session }) => session.record.agentId);
  assert.deepEqual(named('10.1.1.1', ['destCIDR']), ['a']);
  assert.deepEqual(named('11.1.1.1', ['destCIDR']), []);
  assert.deepEqual(named('x', ['default']), ['a', 'b', 'c']);
  assert.deepEqual(named('x', ['default'], 'other'), []);
  for (const agentId of ['a', 'b', 'c']) all.forget(agentId);
  assert.deepEqual(named('10.1.1.1', ['destCIDR', 'default']), []);
});
