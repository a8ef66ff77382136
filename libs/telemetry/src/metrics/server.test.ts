import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DialError } from '@isthmus/tunnel';
import { dial, SERVER, samples, server, tunnel } from './testing.ts';

test('a dial is pending until it ends, and counts once, by its outcome', async () => {
  const { events, metrics } = server();
  for (let i = 0; i < 3; i++) events.emit('dial:start', 'gateway', dial);
  assert.equal((await samples(metrics)).get(`${SERVER}pending_backend_dials`), 3);
  events.emit('dial:end', 'gateway', dial, { ms: 3 });
  const error = new DialError('destination_unavailable', 'No agent available');
  events.emit('dial:end', 'gateway', dial, { ms: 1, error, failure: 'unavailable' });
  const page = await samples(metrics);
  assert.equal(page.get(`${SERVER}pending_backend_dials`), 1);
  assert.equal(page.get(`${SERVER}dial_failure_count{reason="no_agent"}`), 1);
  assert.equal(page.get(`${SERVER}dial_duration_seconds_count`), 1);
  assert.equal(page.get(`${SERVER}dial_duration_seconds_sum`), 0.003);
  assert.equal(page.get('isthmus_dial_errors_total{error="destination_unavailable"}'), 1);
});

test('failures without a dial:end are counted by reason', async () => {
  const { events, metrics } = server();
  events.emit('dial:unasked');
  events.emit('dial:undelivered', dial);
  const page = await samples(metrics);
  assert.equal(page.get(`${SERVER}dial_failure_count{reason="unrecognized_response"}`), 1);
  assert.equal(page.get(`${SERVER}dial_failure_count{reason="send_rsp"}`), 1);
});

test('each way in which a dial fails has the reason of upstream', async () => {
  const { events, metrics } = server();
  const error = new DialError('proxy_internal_error', 'failed');
  for (const failure of ['expired', 'abandoned', 'unavailable', 'terminated', 'error'] as const)
    events.emit('dial:end', 'gateway', dial, { ms: 1, error, failure });
  const page = await samples(metrics);
  for (const reason of ['backend_dial_timeout', 'frontend_close', 'no_agent', 'backend_close', 'error_response'])
    assert.equal(page.get(`${SERVER}dial_failure_count{reason="${reason}"}`), 1, reason);
});

test('gateway and hub in one process count a dial and its tunnel once', async () => {
  const { events, metrics } = server();
  const roles = ['gateway', 'hub'] as const;
  const tunnels = roles.map((role) => tunnel(role, { up: 5, down: 7 }));
  for (const role of roles) {
    events.emit('dial:start', role, dial);
    events.emit('dial:end', role, dial, { ms: 1 });
  }
  for (const each of tunnels) events.emit('tunnel:open', each);
  const page = await samples(metrics);
  assert.equal(page.get(`${SERVER}dial_duration_seconds_count`), 1);
  assert.equal(page.get(`${SERVER}established_connections`), 1);
  assert.equal(page.get('isthmus_tunnel_bytes_total{direction="down"}'), 7);
});

test('bytes of a tunnel count while it is open and after it closed', async () => {
  const { events, metrics } = server();
  const live = { ...tunnel('gateway', { up: 10, down: 20 }) };
  events.emit('tunnel:open', live);
  assert.equal((await samples(metrics)).get('isthmus_tunnel_bytes_total{direction="up"}'), 10);
  Object.assign(live, { up: 11, down: 22 });
  events.emit('tunnel:close', live, { how: 'closed', by: 'caller' }, 2000);
  const page = await samples(metrics);
  assert.equal(page.get('isthmus_tunnel_bytes_total{direction="up"}'), 11);
  assert.equal(page.get('isthmus_tunnel_bytes_total{direction="down"}'), 22);
  assert.equal(page.get(`${SERVER}established_connections`), 0);
  assert.equal(page.get(`${SERVER}connection_duration_seconds_bucket{le="1"}`), 0);
  assert.equal(page.get(`${SERVER}connection_duration_seconds_bucket{le="5"}`), 1);
});

test('callers, writes to them and full receive channels are counted', async () => {
  const { events, metrics } = server();
  for (const via of ['grpc', 'grpc', 'http-connect'] as const) events.emit('caller:open', via);
  events.emit('caller:close', 'grpc');
  events.emit('caller:write', 0.05);
  events.emit('receive:full', 'hub');
  let page = await samples(metrics);
  assert.equal(page.get(`${SERVER}grpc_connections{service_method="Proxy"}`), 1);
  assert.equal(page.get(`${SERVER}http_connections`), 1);
  assert.equal(page.get(`${SERVER}frontend_write_duration_seconds_bucket{le="0.0001"}`), 1);
  assert.equal(page.get(`${SERVER}full_receive_channels{service_method="Connect"}`), 1);
  events.emit('receive:free', 'hub');
  page = await samples(metrics);
  assert.equal(page.get(`${SERVER}full_receive_channels{service_method="Connect"}`), 0);
});

test('packets and stream errors are counted by segment and type', async () => {
  const { events, metrics } = server();
  for (let i = 0; i < 1000; i++) events.emit('packet', 'hub', 'received', 'DATA');
  events.emit('packet', 'hub', 'sent', 'DIAL_REQ');
  events.emit('packet', 'gateway', 'received', 'CLOSE_REQ');
  events.emit('packet', 'gateway', 'sent', 'CLOSE_RSP');
  for (const role of ['gateway', 'hub'] as const) events.emit('packet:error', role, 'Unavailable');
  // Twice: rendering the page counts nothing again.
  await metrics.render();
  const page = await samples(metrics);
  const packets = [...page].filter(([name]) => name.includes('stream_packets_total')).sort();
  assert.deepEqual(packets, [
    [`${SERVER}stream_packets_total{packet_type="CLOSE_REQ",segment="from_client"}`, 1],
    [`${SERVER}stream_packets_total{packet_type="CLOSE_RSP",segment="to_client"}`, 1],
    [`${SERVER}stream_packets_total{packet_type="DATA",segment="from_agent"}`, 1000],
    [`${SERVER}stream_packets_total{packet_type="DIAL_REQ",segment="to_agent"}`, 1],
  ]);
  for (const segment of ['from_client', 'from_agent']) {
    const errors = `${SERVER}stream_errors_total{code="Unavailable",packet_type="Unknown",segment="${segment}"}`;
    assert.equal(page.get(errors), 1);
  }
});

test('lease calls are counted by status and reason', async () => {
  const { metrics } = server();
  metrics.leases.culled();
  metrics.leases.deleted({ status: 200, reason: '', ms: 20 });
  metrics.leases.listed({ status: 403, reason: 'Forbidden', ms: 20 });
  const page = await samples(metrics);
  assert.equal(page.get(`${SERVER}culled_leases_count`), 1);
  assert.equal(page.get(`${SERVER}lease_delete_total{http_status_code="200",reason=""}`), 1);
  assert.equal(page.get(`${SERVER}lease_list_total{http_status_code="403",reason="Forbidden"}`), 1);
  assert.equal(page.get(`${SERVER}lease_list_latency_seconds_bucket{le="0.025",http_status_code="403"}`), 1);
});

test('metrics of two programs in one process do not mix, and close() leaves no listener', async () => {
  const one = server();
  const two = server();
  one.events.emit('caller:open', 'http-connect');
  assert.equal((await samples(two.metrics)).get(`${SERVER}http_connections`), 0);
  one.metrics.close();
  // The table of tunnels is the program's.
  assert.deepEqual(
    one.events.eventNames().map((name) => [name, one.events.listenerCount(name)]),
    [
      ['tunnel:open', 1],
      ['tunnel:close', 1],
    ],
  );
});

test('the page has process metrics if asked for', async () => {
  const page = await samples(server({ process: true }).metrics);
  assert.ok((page.get('process_start_time_seconds') ?? 0) > 1e9);
  assert.ok((page.get('process_resident_memory_bytes') ?? 0) > 1e6);
});
