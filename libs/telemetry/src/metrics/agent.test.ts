import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AGENT, agent, dial, samples, tunnel } from './testing.ts';

test('an agent counts its servers, its endpoints and its lease calls', async () => {
  const { events, metrics } = agent();
  events.emit('server:known', 3);
  events.emit('server:open', { address: 'x:1', serverId: 's', protocol: 'link' });
  events.emit('server:failure', 'x:1', 'connecting', new Error('reset'));
  events.emit('dial:end', 'agent', dial, { ms: 20 });
  events.emit('server:failure', 'x:1', 'connected', new Error('reset'));
  events.emit('endpoint:failure', true);
  events.emit('endpoint:failure', false);
  events.emit('packet', 'agent', 'received', 'DATA');
  events.emit('packet', 'agent', 'sent', 'DATA');
  events.emit('tunnel:open', tunnel('agent'));
  metrics.leases.listed({ status: 200, reason: '', ms: 1 });
  metrics.leases.watched({ status: 200, reason: '' });
  const page = await samples(metrics);
  const value = (name: string) => page.get(AGENT + name);
  assert.equal(value('known_server_count'), 3);
  assert.equal(value('open_server_connections'), 1);
  assert.equal(value('server_connection_failure_count{direction="to_server"}'), 1);
  assert.equal(value('dial_duration_seconds_bucket{le="0.025"}'), 1);
  assert.equal(value('server_connection_failure_count{direction="from_server"}'), 1);
  assert.equal(value('endpoint_dial_failure_total{reason="timeout"}'), 1);
  assert.equal(value('endpoint_dial_failure_total{reason="unknown"}'), 1);
  assert.equal(value('stream_packets_total{packet_type="DATA",segment="to_agent"}'), 1);
  assert.equal(value('stream_packets_total{packet_type="DATA",segment="from_agent"}'), 1);
  assert.equal(value('open_endpoint_connections'), 1);
  assert.equal(value('lease_lists_total{http_response_code="200",reason=""}'), 1);
  assert.equal(value('lease_watches_total{http_response_code="200",reason=""}'), 1);
});

test('an agent counts its tunnels by tenant only: it does not know their hubs', async () => {
  const { events, metrics } = agent();
  events.emit('tunnel:open', { ...tunnel('agent'), hubId: '' });
  const page = await metrics.render();
  assert.match(page.body, /^isthmus_tenant_tunnels\{.*\} 1$/m);
  assert.doesNotMatch(page.body, /isthmus_hub_tunnels/);
});
