import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Directory, type SessionRecord } from '@isthmus/directory';
import type { GatewayState } from './plane.ts';
import { beginning, dial, SERVER, samples, server, session, tunnel } from './testing.ts';

function hub(hubId: string) {
  const at = { peerAddress: `${hubId}:1`, agentAddress: '', zone: '', draining: false };
  return { kind: 'hub', hub: { hubId, incarnation: 1, ...at } } as const;
}

function record(sessionId: string, tenant: string, hubId: string): { kind: 'session'; session: SessionRecord } {
  const { identifiers, since } = session(sessionId, 'a1');
  const made = { sessionId, tenant, agentId: 'a1', identifiers, hubId, since };
  return { kind: 'session', session: { ...made, incarnation: 1, version: 1, draining: false } };
}

/** Creates the metrics of a gateway that sees the sessions of a directory. */
function gateway(directory: Directory, reaches: (hubId: string) => boolean) {
  const { events, metrics } = server({ role: 'gateway' });
  const state: GatewayState = {
    tenant: 'mine',
    reaches,
    links: () => ({ wanted: 2, up: 1 }),
    watch: (watcher) => directory.watch(watcher),
  };
  metrics.measure({ registry: { lastAnswerAt: undefined, behind: 0 }, gateway: state });
  return { events, metrics };
}

test('a gateway counts the sessions of the plane by tenant and by hub, and shows its own tenant even at 0', async () => {
  const directory = new Directory();
  const { metrics } = gateway(directory, (hubId) => hubId === 'h1');
  const shown = async () => [
    await beginning(metrics, 'isthmus_tenant_sessions'),
    await beginning(metrics, 'isthmus_hub_sessions'),
  ];
  assert.deepEqual(await shown(), [{ '{tenant="mine"}': 0 }, {}]);
  for (const change of [hub('h1'), hub('h2')]) directory.apply(change);
  directory.apply(record('s1', 'mine', 'h1'));
  directory.apply(record('s2', 'mine', 'h2'));
  directory.apply(record('s3', 'theirs', 'h2'));
  const both = [
    { '{tenant="mine"}': 2, '{tenant="theirs"}': 1 },
    { '{hub="h1"}': 1, '{hub="h2"}': 2 },
  ];
  assert.deepEqual(await shown(), both);
  const page = await samples(metrics);
  assert.equal(page.get('isthmus_known_sessions'), 3);
  assert.equal(page.get(`${SERVER}ready_backends{proxy_strategy="default"}`), 2);
  assert.equal(page.get('isthmus_reachable_sessions'), 1);
  assert.equal(page.get('isthmus_hub_links_wanted'), 2);
  assert.equal(page.get('isthmus_hub_links'), 1);
  directory.apply({ kind: 'hub-gone', hubId: 'h2', incarnation: 1 });
  assert.deepEqual(await shown(), [{ '{tenant="mine"}': 1 }, { '{hub="h1"}': 1 }]);
  metrics.close();
  directory.apply(record('s4', 'mine', 'h1'));
  assert.equal((await samples(metrics)).get('isthmus_known_sessions'), 1);
});

test('a hub counts its own sessions, and every session that was opened', async () => {
  const { events, metrics } = server({ role: 'hub' });
  const [first, second] = [session('s1', 'a1'), session('s2', 'a2', { protocol: 'packets' })];
  for (const each of [first, second]) events.emit('session:open', each);
  events.emit('session:close', first, 'gone');
  const page = await samples(metrics);
  assert.equal(page.get('isthmus_known_sessions'), 1);
  assert.equal(page.get('isthmus_hub_sessions{hub="h1"}'), 1);
  assert.equal(page.get('isthmus_sessions{protocol="link"}'), 0);
  assert.equal(page.get('isthmus_session_opens_total{protocol="link"}'), 1);
  assert.equal(page.get('isthmus_session_opens_total{protocol="packets"}'), 1);
});

test('a thousand tenants have a line each, and the others share one', async () => {
  const { events, metrics } = server({ role: 'hub' });
  const tenants = Array.from({ length: 1003 }, (_, n) => session(`s${n}`, 'a', { tenant: `t${n}` }));
  for (const each of tenants) events.emit('session:open', each);
  events.emit('session:open', session('long', 'a', { tenant: 'x'.repeat(129) }));
  events.emit('session:open', session('sly', 'a', { tenant: '(others)' }));
  const shown = () => beginning(metrics, 'isthmus_tenant_sessions');
  const full = await shown();
  assert.equal(Object.keys(full).length, 1001);
  assert.equal(full['{tenant="t999"}'], 1);
  assert.equal(full['{tenant="(others)"}'], 5);
  for (const each of tenants.slice(0, 500)) events.emit('session:close', each, 'gone');
  const half = await shown();
  assert.equal(half['{tenant="t1002"}'], 1);
  assert.equal(half['{tenant="(others)"}'], 2);
});

test('tunnels are counted by tenant and by hub, and so are their queued bytes', async () => {
  const { events, metrics } = server();
  const tunnels = [
    tunnel('gateway', { queued: 7 }),
    tunnel('gateway', { hubId: 'h2', dial: { ...dial, tenant: 'b' } }),
  ];
  for (const each of [...tunnels, tunnel('hub')]) events.emit('tunnel:open', each);
  const page = await samples(metrics);
  assert.equal(page.get('isthmus_tenant_tunnels{tenant="default"}'), 1);
  assert.equal(page.get('isthmus_tenant_tunnels{tenant="b"}'), 1);
  assert.equal(page.get('isthmus_hub_tunnels{hub="h1"}'), 1);
  assert.equal(page.get('isthmus_hub_tunnels{hub="h2"}'), 1);
  assert.equal(page.get('isthmus_tunnel_queued_bytes'), 7);
  for (const each of tunnels) events.emit('tunnel:close', each, { how: 'closed', by: 'caller' }, 1);
  assert.deepEqual(await beginning(metrics, 'isthmus_tenant_tunnels'), {});
});

test('links to hubs are counted: all opened, all failed, and the current ones to wanted hubs', async () => {
  const { events, metrics } = server({ role: 'gateway' });
  for (let i = 0; i < 2; i++) events.emit('peer:open', 'h1', 'x:1');
  events.emit('peer:close', 'h1', 'x:1', 'gone');
  events.emit('peer:failure', 'h1', 'x:1', new Error('refused'));
  assert.deepEqual(await beginning(metrics, 'isthmus_hub_link'), {
    s: 0,
    s_wanted: 0,
    _opens_total: 2,
    _failures_total: 1,
  });
});

test('the page shows how old the copy of the registry is and how far it is behind, unless the registry is in memory', async () => {
  const { events, metrics } = server();
  const registry = { lastAnswerAt: undefined as number | undefined, behind: 0 };
  const shown = () => beginning(metrics, 'isthmus_registry_');
  assert.deepEqual(await shown(), { up: 1 });
  metrics.measure({ registry });
  assert.deepEqual(await shown(), { up: 1 });
  Object.assign(registry, { lastAnswerAt: performance.now() - 5000, behind: 3 });
  events.emit('registry', 'down', 'refused');
  const { age_seconds: age = 0, ...rest } = await shown();
  assert.deepEqual(rest, { up: 0, lag_changes: 3 });
  assert.ok(age >= 5 && age < 60, `${age} s`);
});
