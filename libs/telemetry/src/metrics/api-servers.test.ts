import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DialError } from '@isthmus/tunnel';
import { dial, samples, server, tunnel } from './testing.ts';

test("clients' connections to API servers are counted by tenant, apart from tunnels, until the tenant is gone", async () => {
  const { events, metrics } = server({ role: 'hub' });
  const open = { ...tunnel('hub', { up: 5, down: 7 }), role: 'api-server' as const };
  const other = { ...open, dial: { ...dial, tenant: 'other' } };
  for (const each of [open, other]) events.emit('tunnel:open', each);
  const error = new DialError('connection_refused', 'connect: connection refused');
  events.emit('api-server:failure', dial, error, 3);
  const page = await samples(metrics);
  assert.equal(page.get('isthmus_api_server_connections{tenant="default"}'), 1);
  assert.equal(page.get('isthmus_api_server_bytes_total{tenant="default",direction="down"}'), 7);
  assert.equal(page.get('isthmus_api_server_failures_total{tenant="default",error="connection_refused"}'), 1);
  assert.equal(page.get('isthmus_tunnel_bytes_total{direction="down"}'), 0);
  assert.equal(page.get('konnectivity_network_proxy_server_established_connections'), 0);
  events.emit('tunnel:close', open, { how: 'closed', by: 'caller' }, 10);
  events.emit('tenants', { changed: [], gone: ['other'], inForce: 0 });
  const after = await samples(metrics);
  assert.equal(after.get('isthmus_api_server_connections{tenant="default"}'), 0);
  assert.equal(after.get('isthmus_api_server_bytes_total{tenant="default",direction="up"}'), 5);
  assert.equal(after.get('isthmus_api_server_connections{tenant="other"}'), undefined);
});
