import assert from 'node:assert/strict';
import { test } from 'node:test';
import { adminApi } from '@isthmus/proto/admin';
import { type CutBy, Distrusted, planeEvents, SessionLost, type TunnelOutcome, type TunnelSide } from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';
import { aSession, asking, aTunnel } from '../testing/backend.ts';
import { Recent } from './recent.ts';

test('what came, drained and went is listed, the oldest first, with where and why', async () => {
  const events = planeEvents();
  await using client = await asking({ recent: new Recent(events, { role: 'gateway', id: 'm' }) });
  const session = aSession('s');
  events.emit('session:open', session);
  events.emit('session:drain', session);
  events.emit('session:close', session, 'reset');
  events.emit('peer:open', 'h2', '10.0.0.2:8097');
  events.emit('peer:close', 'h2', '10.0.0.2:8097', 'silent');
  events.emit('registry', 'down', 'READONLY');
  const { Event_Type: type, Role } = adminApi;
  const agent = { role: Role.ROLE_AGENT, tenant: 'default', id: 'a', hubId: 'h', address: '10.0.0.1:5000', reason: '' };
  const hub = { role: Role.ROLE_HUB, tenant: '', id: 'h2', hubId: '', address: '10.0.0.2:8097', reason: '' };
  const told = (await client.admin.listEvents({})).events;
  assert.deepEqual(
    told.map(({ atMs, ...event }) => event),
    [
      { type: type.TYPE_CAME, ...hub, role: Role.ROLE_GATEWAY, id: 'm', address: '', reason: 'started' },
      { type: type.TYPE_CAME, ...agent },
      { type: type.TYPE_DRAINS, ...agent },
      { type: type.TYPE_WENT, ...agent, reason: 'reset' },
      { type: type.TYPE_CAME, ...hub },
      { type: type.TYPE_WENT, ...hub, reason: 'silent' },
      { type: type.TYPE_REGISTRY_DOWN, ...hub, role: Role.ROLE_UNSPECIFIED, id: '', address: '', reason: 'READONLY' },
    ],
  );
  assert.ok(told.every(({ atMs }) => Math.abs(Date.now() - atMs) < 60_000));
});

test('an agent that flaps pushes out no others, and many agents leave the last of them, for an hour', () => {
  const events = planeEvents();
  const recent = new Recent(events);
  events.emit('session:open', aSession('first', { agentId: 'first' }));
  for (let n = 0; n < 2 * ADMIN.seen; n++) events.emit('session:close', aSession('s'), `${n}`);
  const kept = recent.events();
  assert.equal(kept.length, 1 + ADMIN.eventsOfOne);
  assert.deepEqual([kept[0]?.id, kept.at(-1)?.reason], ['first', `${2 * ADMIN.seen - 1}`]);
  for (let n = 0; n < 2 * ADMIN.seen; n++) events.emit('session:open', aSession('s', { agentId: `a${n}` }));
  assert.equal(recent.events().length, ADMIN.seen);
  assert.equal(recent.events()[0]?.id, `a${ADMIN.seen}`);
  assert.deepEqual(recent.events(Date.now() + 2 * ADMIN.historyMs), []);
});

test("one tenant's agents push out no other tenant's", () => {
  const events = planeEvents();
  const recent = new Recent(events);
  for (let n = 0; n < 10; n++) events.emit('session:open', aSession('s', { tenant: 'acme', agentId: `a${n}` }));
  for (let n = 0; n < 2 * ADMIN.seen; n++)
    events.emit('session:open', aSession('s', { tenant: 'beta', agentId: `b${n}` }));
  const kept = recent.events();
  assert.deepEqual([kept.length, kept.filter(({ tenant }) => tenant === 'acme').length], [ADMIN.seen, 10]);
});

function cutting() {
  const events = planeEvents();
  const recent = new Recent(events);
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
  const ids = (tenant?: string) => recent.cuts(tenant).cuts.map(({ dialId }) => dialId);
  return { events, recent, end, tell, ids };
}

test("the cuts of the last hour are a gateway's tunnels that neither side ended, each with its names", async () => {
  const { recent, end } = cutting();
  for (const wanted of ['caller', 'destination'] as const) end('acme', wanted);
  end('acme', 'agent', 'at a hub', 'hub');
  end('acme', 'agent');
  await using client = await asking({ recent });
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
  const { recent, end, tell, ids } = cutting();
  end('acme', 'agent', 'seen here');
  tell('early', 60_000);
  tell('too old', ADMIN.historyMs);
  assert.deepEqual(ids('acme'), ['seen here', 'early']);
  const told = recent.cuts('acme').cuts.map(({ hold, gateway }) => [hold, gateway]);
  assert.deepEqual(told, [
    ['', ''],
    ['n1', 'g1'],
  ]);
  const now = Date.now();
  assert.equal(recent.cuts('acme', now + ADMIN.historyMs - 30_000).cuts.length, 1);
  assert.deepEqual(ids('beta'), []);
});

test('whatever a caller tells takes no place of what the gateway saw, even of its own tenant', () => {
  const { recent, end, tell, ids } = cutting();
  for (let n = 0; n < ADMIN.seen; n++) end('acme', 'agent', `seen ${n}`);
  for (let n = 0; n < ADMIN.told + 5; n++) tell(`told ${n}`, 0);
  assert.equal(ids('acme').filter((id) => id.startsWith('seen')).length, ADMIN.seen);
  assert.deepEqual([ids('acme').length, recent.cuts('acme').forgotten], [ADMIN.seen + ADMIN.told, 5]);
});

test('what is told late is kept as long as what is told at once: the first that was told is forgotten first', (context) => {
  context.mock.timers.enable({ apis: ['Date'], now: 10 * ADMIN.historyMs });
  const { recent, tell, ids } = cutting();
  for (let n = 0; n < ADMIN.told; n++) tell(`late ${n}`, ADMIN.historyMs - ADMIN.told + n);
  for (let n = 0; n < 10; n++) tell(`now ${n}`, 0);
  const kept = ids('acme');
  assert.deepEqual([kept.length, recent.cuts('acme').forgotten], [ADMIN.told, 10]);
  assert.deepEqual([kept[0], kept[10], kept.includes('late 9')], ['now 0', 'late 10', false]);
  // What is older than an hour by now is not shown, in whichever order it was told, and makes room.
  context.mock.timers.tick(ADMIN.told + 1);
  tell('then', 0);
  assert.deepEqual([ids('acme').length, recent.cuts('acme').forgotten], [11, 0]);
});

test('a cut that is told costs the same however long ago it was and however many are kept', (context) => {
  const { tell } = cutting();
  let steps = 0;
  for (const name of ['add', 'delete'] as const) {
    const original = Set.prototype[name] as (item: unknown) => unknown;
    context.mock.method(Set.prototype, name, function counted(this: Set<unknown>, item: unknown) {
      steps++;
      return original.call(this, item);
    });
  }
  const told = 10 * ADMIN.told;
  for (let n = 0; n < told; n++) tell(`${n}`, ADMIN.historyMs - 60_000 + n);
  assert.ok(steps < 20 * told, `${steps / told} steps for each`);
});

test('cuts are kept for an hour', () => {
  const { recent, end } = cutting();
  end('acme', 'path');
  const now = Date.now();
  assert.equal(recent.cuts('acme', now + ADMIN.historyMs - 1000).cuts.length, 1);
  assert.deepEqual(recent.cuts('acme', now + ADMIN.historyMs + 1000), { cuts: [], forgotten: 0 });
});

test('a tenant with more cuts than are kept loses its own oldest, and hides those of no other', () => {
  const { recent, end, ids } = cutting();
  end('quiet', 'limit', 'first');
  for (let n = 0; n < ADMIN.seen + 20; n++) end('loud', 'agent', `${n}`);
  assert.deepEqual([ids('quiet'), recent.cuts('quiet').forgotten], [['first'], 0]);
  assert.deepEqual(
    [recent.cuts().cuts.length, recent.cuts().forgotten, recent.cuts('loud').forgotten],
    [ADMIN.seen, 21, 21],
  );
  assert.ok(ids('loud').includes(`${ADMIN.seen + 19}`) && !ids('loud').includes('20'));
});

const ERROR = new Error('certificate has expired');

test('refusals of one kind are one, with their number and the address of the last', () => {
  const events = planeEvents();
  const recent = new Recent(events);
  events.emit('refused', 'agents', '10.0.0.1:4001', ERROR);
  events.emit('refused', 'peers', '10.0.0.1:4002', ERROR);
  events.emit('refused', 'agents', '10.0.0.1:4003', ERROR);
  events.emit('refused', 'agents', '10.0.0.2:4004', ERROR);
  events.emit('refused', 'agents', '10.0.0.1:4005', new Error('no token'));
  assert.deepEqual(
    recent.refusals().map(({ where, remote, reason, count }) => [where, remote, reason, count]),
    [
      ['agents', '10.0.0.1:4005', 'no token', 1],
      ['agents', '10.0.0.2:4004', 'certificate has expired', 1],
      ['agents', '10.0.0.1:4003', 'certificate has expired', 2],
      ['peers', '10.0.0.1:4002', 'certificate has expired', 1],
    ],
  );
});

test('a refusal tells whether the peer distrusted the certificate here', () => {
  const events = planeEvents();
  const recent = new Recent(events);
  events.emit('refused', 'agents', '10.0.0.1:4001', ERROR);
  events.emit('refused', 'agents', '10.0.0.1:4002', new Distrusted('it went away'));
  assert.deepEqual(
    recent.refusals().map(({ reason, distrusted }) => [reason, distrusted]),
    [
      ['it went away', true],
      ['certificate has expired', false],
    ],
  );
});

test('a flood of refusals leaves the last of them, and none for ever', () => {
  const events = planeEvents();
  const recent = new Recent(events);
  for (let n = 0; n < 1000; n++) events.emit('refused', 'agents', `10.0.${n >> 8}.${n & 255}:1`, ERROR);
  assert.equal(recent.refusals().length, ADMIN.refusalsOfPort);
  assert.equal(recent.refusals()[0]?.remote, '10.0.3.231:1');
  const later = Date.now() + 300_000;
  assert.deepEqual(recent.refusals(undefined, later), []);
  assert.equal(recent.refusals(3_600_000, later).length, ADMIN.refusalsOfPort);
});

test('a flood at one port leaves the refusals of the others', () => {
  const events = planeEvents();
  const recent = new Recent(events);
  events.emit('refused', 'agents', '10.0.0.1:4001', ERROR);
  for (let n = 0; n < 1000; n++)
    events.emit('refused', 'callers', '10.0.0.2:1', new Error(`not an HTTP request: ${n}`));
  const kept = recent.refusals();
  assert.deepEqual(
    [kept.length, kept[0]?.reason, kept.at(-1)?.where],
    [ADMIN.refusalsOfPort + 1, 'not an HTTP request: 999', 'agents'],
  );
});

test('a probe that was announced is no refusal', () => {
  const events = planeEvents();
  const recent = new Recent(events);
  recent.expect('10.0.0.1:4001');
  events.emit('refused', 'agents', '10.0.0.1:4001', ERROR);
  assert.deepEqual(recent.refusals(), []);
});
