import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  DialError,
  type DialRequest,
  planeEvents,
  type Role,
  type SessionInfo,
  type Strategy,
  type TunnelInfo,
} from '@isthmus/tunnel';
import { agentMetrics } from './agent.ts';
import type { Backends } from './backends.ts';
import type { Metrics } from './families.ts';
import { type ServerMetricsOptions, serverMetrics } from './server.ts';

const SERVER = 'konnectivity_network_proxy_server_';
const AGENT = 'konnectivity_network_proxy_agent_';

const dial: DialRequest = {
  id: '00000000000000d1',
  tenant: 'default',
  destination: { host: '10.0.0.1', port: 443 },
  deadline: Number.POSITIVE_INFINITY,
  signal: new AbortController().signal,
};

function tunnel(role: Role, up: number, down: number): TunnelInfo {
  return { role, dial, agentId: 'a1', sessionId: 's1', hubId: 'h1', since: 0, up, down };
}

function session(sessionId: string, agentId: string, change: Partial<SessionInfo> = {}): SessionInfo {
  const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };
  const base = { sessionId, tenant: 'default', agentId, hubId: 'h1', identifiers, remote: '', since: 0 };
  return { ...base, protocol: 'link', ...change };
}

function server(options: Partial<ServerMetricsOptions> = {}) {
  const events = planeEvents();
  return { events, metrics: serverMetrics(events, { role: 'gateway', strategies: ['default'], ...options }) };
}

function agent() {
  const events = planeEvents();
  return { events, metrics: agentMetrics(events) };
}

/** The page's samples: `name{labels}` to value. */
async function samples(metrics: Metrics): Promise<Map<string, number>> {
  const { body } = await metrics.render();
  const lines = body.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]),
  );
}

/** `name type` of the families under a prefix, which is left out. */
async function families(metrics: Metrics, prefix: string): Promise<string[]> {
  const { body } = await metrics.render();
  const types = body.split('\n').filter((line) => line.startsWith(`# TYPE ${prefix}`));
  return types.map((line) => line.slice(`# TYPE ${prefix}`.length)).sort();
}

test('a server has the families of upstream, with their types', async () => {
  assert.deepEqual(await families(server().metrics, SERVER), [
    'connection_duration_seconds histogram',
    'culled_leases_count counter',
    'dial_duration_seconds histogram',
    'dial_failure_count counter',
    'established_connections gauge',
    'frontend_write_duration_seconds histogram',
    'full_receive_channels gauge',
    'grpc_connections gauge',
    'http_connections gauge',
    'lease_delete_latency_seconds histogram',
    'lease_delete_total counter',
    'lease_list_latency_seconds histogram',
    'lease_list_total counter',
    'pending_backend_dials gauge',
    'ready_backend_connections gauge',
    'ready_backends gauge',
    'stream_errors_total counter',
    'stream_packets_total counter',
  ]);
});

test('an agent has the families of upstream, with their types', async () => {
  assert.deepEqual(await families(agent().metrics, AGENT), [
    'dial_duration_seconds histogram',
    'endpoint_dial_failure_total counter',
    'known_server_count gauge',
    'lease_list_latency_seconds histogram',
    'lease_lists_total counter',
    'lease_watches_total counter',
    'open_endpoint_connections gauge',
    'open_server_connections gauge',
    'server_connection_failure_count counter',
    'stream_errors_total counter',
    'stream_packets_total counter',
  ]);
});

test('gauges and failure counters are there at 0 before anything happened', async () => {
  const page = await samples(server().metrics);
  for (const name of [
    'established_connections',
    'pending_backend_dials',
    'ready_backend_connections',
    'ready_backends{proxy_strategy="default"}',
    'http_connections',
    'grpc_connections{service_method="Proxy"}',
    'dial_failure_count{reason="no_agent"}',
    'culled_leases_count',
  ]) {
    assert.equal(page.get(SERVER + name), 0, name);
  }
  const agentPage = await samples(agent().metrics);
  for (const name of ['open_server_connections', 'known_server_count', 'open_endpoint_connections']) {
    assert.equal(agentPage.get(AGENT + name), 0, name);
  }
});

test('the page is plain text format 0.0.4 without labels of ours on the families of upstream', async () => {
  const { metrics } = server();
  const { contentType, body } = await metrics.render();
  assert.equal(contentType, 'text/plain; version=0.0.4; charset=utf-8');
  assert.match(body, /^konnectivity_network_proxy_server_established_connections 0$/m);
});

test('bucket bounds are written as Go writes them', async () => {
  const { body } = await server().metrics.render();
  const bounds = [...body.matchAll(/_server_dial_duration_seconds_bucket\{le="([^"]+)"\}/g)].map((match) => match[1]);
  assert.deepEqual(bounds, ['1e-06', '1e-05', '0.0001', '0.005', '0.025', '0.1', '0.5', '2.5', '12.5', '+Inf']);
});

test('a dial is pending until it ends and counts once by how it ended', async () => {
  const { events, metrics } = server();
  for (let i = 0; i < 3; i++) events.emit('dial:start', 'gateway', dial);
  assert.equal((await samples(metrics)).get(`${SERVER}pending_backend_dials`), 3);
  events.emit('dial:end', 'gateway', dial, { ms: 3 });
  const error = new DialError('destination_unavailable', 'No agent available');
  events.emit('dial:end', 'gateway', dial, { ms: 1, error, reason: 'no_agent' });
  const page = await samples(metrics);
  assert.equal(page.get(`${SERVER}pending_backend_dials`), 1);
  assert.equal(page.get(`${SERVER}dial_failure_count{reason="no_agent"}`), 1);
  assert.equal(page.get(`${SERVER}dial_duration_seconds_count`), 1);
  assert.equal(page.get(`${SERVER}dial_duration_seconds_sum`), 0.003);
  assert.equal(page.get('isthmus_dial_errors_total{error="destination_unavailable"}'), 1);
});

test('failures that no dial ends with count by their reason', async () => {
  const { events, metrics } = server();
  events.emit('dial:failure', 'unrecognized_response');
  events.emit('dial:failure', 'send_rsp');
  const page = await samples(metrics);
  assert.equal(page.get(`${SERVER}dial_failure_count{reason="unrecognized_response"}`), 1);
  assert.equal(page.get(`${SERVER}dial_failure_count{reason="send_rsp"}`), 1);
});

test('gateway and hub in one process count a dial and its tunnel once', async () => {
  const { events, metrics } = server();
  const tunnels = [tunnel('gateway', 5, 7), tunnel('hub', 5, 7)];
  for (const { role } of tunnels) {
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
  const live = { ...tunnel('gateway', 10, 20) };
  events.emit('tunnel:open', live);
  assert.equal((await samples(metrics)).get('isthmus_tunnel_bytes_total{direction="up"}'), 10);
  Object.assign(live, { up: 11, down: 22 });
  events.emit('tunnel:close', live, { ms: 2000, closedBy: 'caller' });
  const page = await samples(metrics);
  assert.equal(page.get('isthmus_tunnel_bytes_total{direction="up"}'), 11);
  assert.equal(page.get('isthmus_tunnel_bytes_total{direction="down"}'), 22);
  assert.equal(page.get(`${SERVER}established_connections`), 0);
  assert.equal(page.get(`${SERVER}connection_duration_seconds_bucket{le="1"}`), 0);
  assert.equal(page.get(`${SERVER}connection_duration_seconds_bucket{le="5"}`), 1);
});

test('two sessions of an agent are one backend, a draining one is still one, and tenants are apart', async () => {
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
  assert.equal(page.get('isthmus_known_sessions'), 3);
  const ready = [];
  for (const each of sessions) {
    events.emit('session:close', each, 'gone');
    page = await samples(metrics);
    ready.push(page.get(`${SERVER}ready_backends{proxy_strategy="default"}`));
  }
  assert.deepEqual(ready, [2, 1, 0]);
  assert.equal(page.get('isthmus_known_sessions'), 0);
  assert.equal(page.get('isthmus_sessions{protocol="link"}'), 0);
});

test('each strategy counts what it chooses among', async () => {
  const identifiers = { ipv4: ['10.0.0.1'], ipv6: [], host: ['a', 'b'], cidr: ['10.0.0.0/8'], defaultRoute: true };
  const sessions = [session('s1', 'a1', { identifiers }), session('s2', 'a2', { identifiers }), session('s3', 'a3')];
  const strategies: Strategy[] = ['default', 'destHost', 'destCIDR', 'defaultRoute'];
  const told: Backends[] = [];
  const { metrics } = server({
    strategies,
    sessions(backends) {
      for (const each of sessions) backends.came(each);
      told.push(backends);
      return () => {};
    },
  });
  const ready = async () => {
    const page = await samples(metrics);
    return strategies.map((strategy) => page.get(`${SERVER}ready_backends{proxy_strategy="${strategy}"}`));
  };
  assert.deepEqual(await ready(), [3, 3, 1, 2]);
  told[0]?.went(sessions[0] as SessionInfo);
  assert.deepEqual(await ready(), [2, 3, 1, 1]);
});

test('callers, their writes and full channels are counted', async () => {
  const { events, metrics } = server();
  for (const via of ['grpc', 'grpc', 'http-connect'] as const) events.emit('caller:open', via);
  events.emit('caller:close', 'grpc');
  events.emit('caller:write', 0.05);
  events.emit('receive:full', 'Connect');
  let page = await samples(metrics);
  assert.equal(page.get(`${SERVER}grpc_connections{service_method="Proxy"}`), 1);
  assert.equal(page.get(`${SERVER}http_connections`), 1);
  assert.equal(page.get(`${SERVER}frontend_write_duration_seconds_bucket{le="0.0001"}`), 1);
  assert.equal(page.get(`${SERVER}full_receive_channels{service_method="Connect"}`), 1);
  events.emit('receive:free', 'Connect');
  page = await samples(metrics);
  assert.equal(page.get(`${SERVER}full_receive_channels{service_method="Connect"}`), 0);
});

test('packets and stream errors are counted by segment and type', async () => {
  const { events, metrics } = server();
  for (let i = 0; i < 1000; i++) events.emit('packet', 'from_agent', 'DATA');
  events.emit('packet', 'to_agent', 'DIAL_REQ');
  events.emit('packet:error', 'from_agent', 'Unavailable', 'Unknown');
  // Twice: asking for the page does not count anything again.
  await metrics.render();
  const page = await samples(metrics);
  const packets = [...page].filter(([name]) => name.includes('stream_packets_total'));
  assert.deepEqual(packets, [
    [`${SERVER}stream_packets_total{packet_type="DATA",segment="from_agent"}`, 1000],
    [`${SERVER}stream_packets_total{packet_type="DIAL_REQ",segment="to_agent"}`, 1],
  ]);
  const errors = `${SERVER}stream_errors_total{code="Unavailable",packet_type="Unknown",segment="from_agent"}`;
  assert.equal(page.get(errors), 1);
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

test('an agent counts its servers, its endpoints and its lease calls', async () => {
  const { events, metrics } = agent();
  events.emit('server:known', 3);
  events.emit('server:open', { address: 'x:1', serverId: 's', protocol: 'link' });
  events.emit('server:failure', 'x:1', 'to_server', new Error('reset'));
  events.emit('dial:end', 'agent', dial, { ms: 20 });
  events.emit('endpoint:failure', 'timeout');
  events.emit('tunnel:open', tunnel('agent', 0, 0));
  metrics.leases.listed({ status: 200, reason: '', ms: 1 });
  metrics.leases.watched({ status: 200, reason: '' });
  const page = await samples(metrics);
  const value = (name: string) => page.get(AGENT + name);
  assert.equal(value('known_server_count'), 3);
  assert.equal(value('open_server_connections'), 1);
  assert.equal(value('server_connection_failure_count{direction="to_server"}'), 1);
  assert.equal(value('dial_duration_seconds_bucket{le="0.025"}'), 1);
  assert.equal(value('endpoint_dial_failure_total{reason="timeout"}'), 1);
  assert.equal(value('open_endpoint_connections'), 1);
  assert.equal(value('lease_lists_total{http_response_code="200",reason=""}'), 1);
  assert.equal(value('lease_watches_total{http_response_code="200",reason=""}'), 1);
});

test('metrics of two programs in one process do not mix, and close() leaves no listener', async () => {
  const one = server();
  const two = server();
  one.events.emit('caller:open', 'http-connect');
  assert.equal((await samples(two.metrics)).get(`${SERVER}http_connections`), 0);
  one.metrics.close();
  assert.deepEqual(one.events.eventNames(), []);
});

test('process metrics are there when asked for', async () => {
  const page = await samples(server({ process: true }).metrics);
  assert.ok((page.get('process_start_time_seconds') ?? 0) > 1e9);
  assert.ok((page.get('process_resident_memory_bytes') ?? 0) > 1e6);
});
