import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DialError, NotAuthorised } from '@isthmus/tunnel';
import type { DialLimits, RefusingLimit } from '@isthmus/tunnel/limits';
import type { LimitedTenant } from './tenants.ts';
import { beginning, dial, samples, server, session, tunnel } from './testing.ts';

function planeOf(...names: string[]) {
  const tenants = new Set(names);
  const state = {
    get size() {
      return tenants.size;
    },
    has: (tenant: string) => tenants.has(tenant),
    badFiles: 2,
    certificates: () => [{ tenant: 'acme', where: 'server', validUntil: 5000 }],
  };
  return { tenants, ...server({ role: 'server', tenants: state }) };
}

test('without tenants there is no family of tenants beside those that always were', async () => {
  const { metrics } = server();
  const names = metrics.declared.map(({ name }) => name).filter((name) => name.startsWith('isthmus_tenant'));
  assert.deepEqual(names.sort(), ['isthmus_tenant_sessions', 'isthmus_tenant_tunnels']);
});

test('dials, bytes, refusals and agents are counted by tenant', async () => {
  const { events, metrics } = planeOf('acme', 'beta', 'idle');
  const [mine, theirs] = [
    { ...dial, tenant: 'acme' },
    { ...dial, tenant: 'beta' },
  ];
  events.emit('dial:end', 'gateway', mine, { ms: 1 });
  events.emit('dial:end', 'hub', mine, { ms: 1 });
  events.emit('dial:end', 'gateway', mine, { ms: 1, error: new DialError('dns_error', 'no') });
  events.emit('dial:end', 'gateway', theirs, { ms: 1, error: new DialError('destination_ip_prohibited', 'no') });
  const gone = { error: new DialError('connection_terminated', 'gone'), failure: 'abandoned' } as const;
  events.emit('dial:end', 'gateway', theirs, { ms: 1, ...gone });
  assert.deepEqual(await beginning(metrics, 'isthmus_tenant_dials_total'), {
    '{tenant="acme",outcome="established"}': 1,
    '{tenant="acme",outcome="failed"}': 1,
    '{tenant="acme",outcome="abandoned"}': 0,
    '{tenant="acme",outcome="refused"}': 0,
    '{tenant="beta",outcome="established"}': 0,
    '{tenant="beta",outcome="failed"}': 0,
    '{tenant="beta",outcome="abandoned"}': 1,
    '{tenant="beta",outcome="refused"}': 1,
  });

  const [ended, open] = [tunnel('gateway', { dial: mine, up: 3, down: 4 }), tunnel('gateway', { dial: mine, up: 10 })];
  for (const each of [ended, open]) events.emit('tunnel:open', each);
  events.emit('tunnel:close', ended, { how: 'closed', by: 'caller' }, 1);
  assert.deepEqual(await beginning(metrics, 'isthmus_tenant_tunnel_bytes_total'), {
    '{tenant="acme",direction="up"}': 13,
    '{tenant="acme",direction="down"}': 4,
    '{tenant="beta",direction="up"}': 0,
    '{tenant="beta",direction="down"}': 0,
  });

  const principal = { tenant: 'beta', role: 'agent', name: 'a', rule: 'beta.yaml: agents[0]' } as const;
  events.emit('refused', 'agents', '10.0.0.1:1', new NotAuthorised('no', { principal }));
  events.emit('refused', 'agents', '10.0.0.1:2', new Error('no certificate'));
  const refused = { '{tenant="acme"}': 0, '{tenant="beta"}': 1 };
  assert.deepEqual(await beginning(metrics, 'isthmus_tenant_refused_total'), refused);

  const sessions = ['s1', 's2'].map((id) => session(id, 'a1', { tenant: 'acme' }));
  for (const each of [...sessions, session('s3', 'a2', { tenant: 'acme' })]) events.emit('session:open', each);
  events.emit('session:close', sessions[0] ?? session('', ''), 'gone');
  // A process with a gateway counts what it sees of the registry instead.
  assert.deepEqual(await beginning(metrics, 'isthmus_tenant_agents'), {});
});

test('a hub counts the agents of its sessions', async () => {
  const state = { size: 1, has: (tenant: string) => tenant === 'acme', badFiles: 0, certificates: () => [] };
  const { events, metrics } = server({ role: 'hub', tenants: state });
  const [first, second] = ['s1', 's2'].map((id) => session(id, 'a1', { tenant: 'acme' }));
  assert.ok(first && second);
  for (const each of [first, second, session('s3', 'a2', { tenant: 'acme' }), session('s4', 'a', { tenant: 'x' })])
    events.emit('session:open', each);
  assert.deepEqual(await beginning(metrics, 'isthmus_tenant_agents'), { '{tenant="acme"}': 2 });
  events.emit('session:close', first, 'gone');
  assert.deepEqual(await beginning(metrics, 'isthmus_tenant_agents'), { '{tenant="acme"}': 2 });
  events.emit('session:close', second, 'gone');
  assert.deepEqual(await beginning(metrics, 'isthmus_tenant_agents'), { '{tenant="acme"}': 1 });
});

test('only tenants in force have lines: names that are made up have none, and who is gone takes them along', async () => {
  const { tenants, events, metrics } = planeOf('acme');
  for (let n = 0; n < 100; n++) events.emit('dial:end', 'gateway', { ...dial, tenant: `made-up-${n}` }, { ms: 1 });
  events.emit('dial:end', 'gateway', { ...dial, tenant: 'acme' }, { ms: 1 });
  assert.equal(Object.keys(await beginning(metrics, 'isthmus_tenant_dials_total')).length, 4);
  tenants.delete('acme');
  events.emit('tenants', { changed: [], gone: ['acme'], inForce: 0 });
  assert.deepEqual(await beginning(metrics, 'isthmus_tenant_dials_total'), {});
  const page = await samples(metrics);
  assert.deepEqual([page.get('isthmus_tenants'), page.get('isthmus_tenant_files_bad')], [0, 2]);
  assert.equal(page.get('isthmus_tenant_certificate_expiry_timestamp_seconds{tenant="acme",where="server"}'), 5);
});

test("a tenant's page has its own lines and nothing else", async () => {
  const { events, metrics } = planeOf('acme', 'beta');
  for (const tenant of ['acme', 'beta']) {
    events.emit('dial:end', 'gateway', { ...dial, tenant }, { ms: 1 });
    events.emit('tunnel:open', tunnel('gateway', { dial: { ...dial, tenant } }));
  }
  for (const accept of [undefined, 'application/openmetrics-text']) {
    const { body } = await metrics.render(accept, 'beta');
    const lines = body.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    assert.ok(lines.length >= 7, body);
    for (const line of lines) assert.match(line, /\{tenant="beta"[,}]/);
  }
  const { body } = await metrics.render(undefined, 'nobody');
  assert.equal(body, '');
});

const limits: DialLimits = {
  dialsPerSecond: 200,
  burst: 400,
  pendingDials: 100,
  tunnels: 5000,
  bytesPerSecond: Number.POSITIVE_INFINITY,
  bytesQueued: 1e6,
};

function tenant(name: string): LimitedTenant {
  const refused = new Map<RefusingLimit, number>([['dialsPerSecond', 3]]);
  const rates = { dialsPerSecond: 7, bytesPerSecond: 8 };
  return { name, limits, use: { pendingDials: 1, tunnels: 2, bytesQueued: 4, dials: 5, bytes: 6, refused, ...rates } };
}

const FAMILIES = ['limit', 'use', 'refused_dials_total'];

async function limitLines(metrics: ReturnType<typeof seeing>) {
  const lines = Object.entries(await beginning(metrics, 'isthmus_tenant_'));
  return Object.fromEntries(lines.filter(([line]) => FAMILIES.some((family) => line.startsWith(`${family}{`))));
}

function seeing(tenants: readonly LimitedTenant[]) {
  const { metrics } = server({
    role: 'gateway',
    tenants: { size: 1, has: () => true, badFiles: 0, certificates: () => [] },
  });
  metrics.measure({ registry: { lastAnswerAt: undefined, behind: 0 }, using: () => tenants });
  return metrics;
}

test('a tenant’s use, limits and refusals are on the page, without limits that are none', async () => {
  assert.deepEqual(await limitLines(seeing([tenant('acme')])), {
    'limit{tenant="acme",limit="pendingDials"}': 100,
    'limit{tenant="acme",limit="tunnels"}': 5000,
    'limit{tenant="acme",limit="bytesQueued"}': 1e6,
    'limit{tenant="acme",limit="dialsPerSecond"}': 200,
    'use{tenant="acme",limit="pendingDials"}': 1,
    'use{tenant="acme",limit="tunnels"}': 2,
    'use{tenant="acme",limit="bytesQueued"}': 4,
    'refused_dials_total{tenant="acme",limit="dialsPerSecond"}': 3,
    'refused_dials_total{tenant="acme",limit="pendingDials"}': 0,
    'refused_dials_total{tenant="acme",limit="tunnels"}': 0,
    'refused_dials_total{tenant="acme",limit="bytesQueued"}': 0,
  });
});

test('of many tenants there are lines of 1,000', async () => {
  const many = seeing(Array.from({ length: 1200 }, (_, i) => tenant(`t${i}`)));
  const lines = Object.keys(await beginning(many, 'isthmus_tenant_use'));
  assert.equal(lines.filter((line) => line.includes('limit="tunnels"')).length, 1000);
});
