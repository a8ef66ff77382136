import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type CutBy, planeEvents, SessionLost, type TunnelOutcome, type TunnelSide } from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';
import { asking, aTunnel } from '../testing/backend.ts';
import { RecentCuts } from './recent-cuts.ts';
import { RecentHistory } from './recent-history.ts';
import { RecentRefusals } from './recent-refusals.ts';

function recent() {
  const events = planeEvents();
  const cuts = new RecentCuts(events);
  const end = (tenant: string, by: CutBy | TunnelSide, id = 'd1', role: 'gateway' | 'hub' = 'gateway') => {
    const { dial } = aTunnel();
    const caller = { via: 'http-connect', identity: 'CN=kube-apiserver' } as const;
    const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
    const tunnel = aTunnel({ role, up: 3, down: 5, dial: { ...dial, id, tenant, caller, traceparent } });
    const error = new SessionLost('agent a has closed all its connections', { by: 'agent' });
    const outcome: TunnelOutcome =
      by === 'caller' || by === 'destination' ? { how: 'failed', by, error } : { how: 'cut', by, error };
    events.emit('tunnel:close', tunnel, outcome, 65_000);
  };
  const tell = (id: string, agoMs: number) => {
    const dial = { id, tenant: 'acme', destination: { host: '10.0.0.1', port: 443 } };
    const says = { agentId: 'a', gateway: 'g1', hold: 'n1', by: 'path', reason: 'no way' } as const;
    events.emit('hold:cut', { dial, ...says, ms: 5, agoMs, up: 1, down: 2 });
  };
  const ids = (tenant?: string) => cuts.of(tenant).cuts.map(({ dialId }) => dialId);
  return { events, cuts, end, tell, ids };
}

test("the cuts of the last hour are a gateway's tunnels that neither side ended, each with its names", async () => {
  const { events, cuts, end } = recent();
  for (const wanted of ['caller', 'destination'] as const) end('acme', wanted);
  end('acme', 'agent', 'at a hub', 'hub');
  end('acme', 'agent');
  await using client = await asking({
    cuts,
    history: new RecentHistory(events, 'gateway'),
    refusals: new RecentRefusals(events),
  });
  const { cuts: told, cutsForgotten } = await client.admin.getHistory({});
  const [cut] = told.map(({ atMs: _at, ...rest }) => rest);
  assert.deepEqual([told.length, cutsForgotten], [1, 0]);
  assert.deepEqual(cut, {
    by: 'agent',
    reason: 'agent a has closed all its connections',
    dialId: 'd1',
    tenant: 'acme',
    destination: 'h:1',
    caller: 'CN=kube-apiserver',
    agentId: 'a',
    hubId: 'h',
    ageMs: 65_000,
    bytesUp: 3,
    bytesDown: 5,
    traceId: 'a'.repeat(32),
    hold: '',
    gateway: '',
  });
  assert.deepEqual((await client.admin.getHistory({ tenant: 'beta' })).cuts, []);
});

test('what isthmus hold says was cut is listed by its time, with who says so, and within the hour', () => {
  const { cuts, end, tell, ids } = recent();
  end('acme', 'agent', 'seen here');
  tell('early', 60_000);
  tell('too old', ADMIN.historyMs);
  assert.deepEqual(ids('acme'), ['seen here', 'early']);
  const told = cuts.of('acme').cuts.map(({ hold, gateway }) => [hold, gateway]);
  assert.deepEqual(told, [
    ['', ''],
    ['n1', 'g1'],
  ]);
  const now = Date.now();
  assert.equal(cuts.of('acme', now + ADMIN.historyMs - 30_000).cuts.length, 1);
  assert.deepEqual(ids('beta'), []);
});

test('whatever a caller tells takes no place of what the gateway saw, even of its own tenant', () => {
  const { cuts, end, tell, ids } = recent();
  for (let n = 0; n < ADMIN.cuts; n++) end('acme', 'agent', `seen ${n}`);
  for (let n = 0; n < ADMIN.toldCuts + 5; n++) tell(`told ${n}`, 0);
  assert.equal(ids('acme').filter((id) => id.startsWith('seen')).length, ADMIN.cuts);
  assert.deepEqual([ids('acme').length, cuts.of('acme').forgotten], [ADMIN.cuts + ADMIN.toldCuts, 5]);
});

test('what is told late is kept as long as what is told at once: the first that was told is forgotten first', (context) => {
  context.mock.timers.enable({ apis: ['Date'], now: 10 * ADMIN.historyMs });
  const { cuts, tell, ids } = recent();
  for (let n = 0; n < ADMIN.toldCuts; n++) tell(`late ${n}`, ADMIN.historyMs - ADMIN.toldCuts + n);
  for (let n = 0; n < 10; n++) tell(`now ${n}`, 0);
  const kept = ids('acme');
  assert.deepEqual([kept.length, cuts.of('acme').forgotten], [ADMIN.toldCuts, 10]);
  assert.deepEqual([kept[0], kept[10], kept.includes('late 9')], ['now 0', 'late 10', false]);
  // What is older than an hour by now is not shown, in whichever order it was told, and makes room.
  context.mock.timers.tick(ADMIN.toldCuts + 1);
  tell('then', 0);
  assert.deepEqual([ids('acme').length, cuts.of('acme').forgotten], [11, 0]);
});

test('a cut that is told costs the same however long ago it was and however many are kept', (context) => {
  const { tell } = recent();
  let steps = 0;
  for (const name of ['add', 'delete'] as const) {
    const original = Set.prototype[name] as (item: unknown) => unknown;
    context.mock.method(Set.prototype, name, function counted(this: Set<unknown>, item: unknown) {
      steps++;
      return original.call(this, item);
    });
  }
  const told = 10 * ADMIN.toldCuts;
  for (let n = 0; n < told; n++) tell(`${n}`, ADMIN.historyMs - 60_000 + n);
  assert.ok(steps < 20 * told, `${steps / told} steps for each`);
});

test('cuts are kept for an hour', () => {
  const { cuts, end } = recent();
  end('acme', 'path');
  const now = Date.now();
  assert.equal(cuts.of('acme', now + ADMIN.historyMs - 1000).cuts.length, 1);
  assert.deepEqual(cuts.of('acme', now + ADMIN.historyMs + 1000), { cuts: [], forgotten: 0 });
});

test('a tenant with more cuts than are kept loses its own oldest, and hides those of no other', () => {
  const { cuts, end, ids } = recent();
  end('quiet', 'limit', 'first');
  for (let n = 0; n < ADMIN.cuts + 20; n++) end('loud', 'agent', `${n}`);
  assert.deepEqual([ids('quiet'), cuts.of('quiet').forgotten], [['first'], 0]);
  assert.deepEqual([cuts.of().cuts.length, cuts.of().forgotten, cuts.of('loud').forgotten], [ADMIN.cuts, 21, 21]);
  assert.ok(ids('loud').includes(`${ADMIN.cuts + 19}`) && !ids('loud').includes('20'));
});
