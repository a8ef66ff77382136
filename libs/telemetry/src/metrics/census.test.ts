import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Strategy } from '@isthmus/directory';
import { SERVER, samples, server, session } from './testing.ts';

test('two sessions of an agent are one backend, a draining one still counts, and tenants are separate', async () => {
  const { events, metrics } = server();
  const packets = session('s2', 'a1', { protocol: 'packets' });
  const sessions = [session('s1', 'a1'), packets, session('s3', 'a1', { tenant: 'other' })] as const;
  for (const each of sessions) events.emit('session:open', each);
  events.emit('session:drain', sessions[0]);
  let page = await samples(metrics);
  assert.equal(page.get(`${SERVER}ready_backends{proxy_strategy="default"}`), 2);
  assert.equal(page.get(`${SERVER}ready_backend_connections`), 2);
  assert.equal(page.get(`${SERVER}grpc_connections{service_method="Connect"}`), 1);
  assert.equal(page.get('isthmus_sessions{protocol="link"}'), 2);
  const ready = [];
  for (const each of sessions) {
    events.emit('session:close', each, 'gone');
    page = await samples(metrics);
    ready.push(page.get(`${SERVER}ready_backends{proxy_strategy="default"}`));
  }
  assert.deepEqual(ready, [2, 1, 0]);
  assert.equal(page.get('isthmus_sessions{protocol="link"}'), 0);
});

test('each strategy counts the backends that it chooses among', async () => {
  const identifiers = { ipv4: ['10.0.0.1'], ipv6: [], host: ['a', 'b'], cidr: ['10.0.0.0/8'], defaultRoute: true };
  const own = { identifiers };
  const sessions = [session('s1', 'a1', own), session('s2', 'a2', own), session('s3', 'a3')] as const;
  const strategies: Strategy[] = ['default', 'destHost', 'destCIDR', 'defaultRoute'];
  const { events, metrics } = server({ strategies });
  for (const each of sessions) events.emit('session:open', each);
  const ready = async () => {
    const page = await samples(metrics);
    return strategies.map((strategy) => page.get(`${SERVER}ready_backends{proxy_strategy="${strategy}"}`));
  };
  assert.deepEqual(await ready(), [3, 3, 1, 2]);
  events.emit('session:close', sessions[0], 'gone');
  assert.deepEqual(await ready(), [2, 3, 1, 1]);
});
