import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Declared, Metrics } from './families.ts';
import { AGENT, agent, SERVER, samples, server } from './testing.ts';

type Row = readonly [type: string, labels?: readonly string[], buckets?: readonly number[]];

const DIAL = [1e-6, 1e-5, 1e-4, 0.005, 0.025, 0.1, 0.5, 2.5, 12.5];
const DAY = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 14400, 43200, 86400];
const DEFAULT = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const AGENT_DIAL = [0.005, 0.025, 0.1, 0.5, 2.5, 10, 30];

/** Upstream's families at v0.36, from its sources. */
const OF_SERVERS: Record<string, Row> = {
  connection_duration_seconds: ['histogram', [], DAY],
  culled_leases_count: ['counter'],
  dial_duration_seconds: ['histogram', [], DIAL],
  dial_failure_count: ['counter', ['reason']],
  established_connections: ['gauge'],
  frontend_write_duration_seconds: ['histogram', [], DIAL],
  full_receive_channels: ['gauge', ['service_method']],
  grpc_connections: ['gauge', ['service_method']],
  http_connections: ['gauge'],
  lease_delete_latency_seconds: ['histogram', ['http_status_code'], DEFAULT],
  lease_delete_total: ['counter', ['http_status_code', 'reason']],
  lease_list_latency_seconds: ['histogram', ['http_status_code'], DEFAULT],
  lease_list_total: ['counter', ['http_status_code', 'reason']],
  pending_backend_dials: ['gauge'],
  ready_backend_connections: ['gauge'],
  ready_backends: ['gauge', ['proxy_strategy']],
  stream_errors_total: ['counter', ['code', 'packet_type', 'segment']],
  stream_packets_total: ['counter', ['packet_type', 'segment']],
};

const OF_AGENTS: Record<string, Row> = {
  dial_duration_seconds: ['histogram', [], AGENT_DIAL],
  endpoint_dial_failure_total: ['counter', ['reason']],
  known_server_count: ['gauge'],
  lease_list_latency_seconds: ['histogram', ['http_response_code'], AGENT_DIAL],
  lease_lists_total: ['counter', ['http_response_code', 'reason']],
  lease_watches_total: ['counter', ['http_response_code', 'reason']],
  open_endpoint_connections: ['gauge'],
  open_server_connections: ['gauge'],
  server_connection_failure_count: ['counter', ['direction']],
  stream_errors_total: ['counter', ['code', 'packet_type', 'segment']],
  stream_packets_total: ['counter', ['packet_type', 'segment']],
};

/** Returns the families declared under a prefix, in the form of the tables above. */
function rows({ declared }: Metrics, prefix: string): Record<string, Row> {
  const row = ({ name, type, labels, buckets }: Declared) => {
    const rest = buckets ? [labels, buckets] : labels.length > 0 ? [labels] : [];
    return [name.slice(prefix.length), [type, ...rest]] as const;
  };
  const own = declared.filter(({ name }) => name.startsWith(prefix));
  return Object.fromEntries(own.map(row).sort()) as unknown as Record<string, Row>;
}

test('a server has the families of upstream, with their types, labels and buckets', () => {
  for (const role of ['server', 'gateway', 'hub'] as const) {
    assert.deepEqual(rows(server({ role }).metrics, SERVER), OF_SERVERS, role);
  }
});

test('an agent has the families of upstream, with their types, labels and buckets', () => {
  assert.deepEqual(rows(agent().metrics, AGENT), OF_AGENTS);
});

test('every family that is not from upstream begins with isthmus_', () => {
  for (const { declared } of [server().metrics, agent().metrics]) {
    for (const { name } of declared) assert.match(name, /^(isthmus_|konnectivity_network_proxy_(server|agent)_)/);
  }
});

test('both formats have the same samples under the same names', async () => {
  const [ofServer, ofAgent] = [server(), agent()];
  ofServer.events.emit('dial:unasked');
  ofAgent.events.emit('endpoint:failure', true);
  ofAgent.events.emit('server:failure', 'x:1', 'connecting', new Error('reset'));
  for (const { metrics } of [ofServer, ofAgent]) {
    const names = (body: string) => body.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    const [text, open] = await Promise.all([metrics.render(), metrics.render('application/openmetrics-text')]);
    assert.deepEqual(names(open.body), names(text.body));
    assert.ok(names(text.body).length > 20);
  }
});

test('gauges are on the page from the start, at 0', async () => {
  const page = await samples(server().metrics);
  for (const name of [
    'established_connections',
    'pending_backend_dials',
    'ready_backend_connections',
    'ready_backends{proxy_strategy="default"}',
    'http_connections',
    'grpc_connections{service_method="Proxy"}',
    'culled_leases_count',
  ]) {
    assert.equal(page.get(SERVER + name), 0, name);
  }
  const agentPage = await samples(agent().metrics);
  for (const name of ['open_server_connections', 'known_server_count', 'open_endpoint_connections']) {
    assert.equal(agentPage.get(AGENT + name), 0, name);
  }
});

test("upstream's labelled counters show only labels that occurred", async () => {
  const labelled = (body: string, families: Record<string, Row>) =>
    Object.entries(families)
      .filter(([, [type, labels = []]]) => type === 'counter' && labels.length > 0)
      .flatMap(([name]) => body.match(new RegExp(`^konnectivity_network_proxy_\\w+_${name}{.*`, 'gm')) ?? []);
  const { body: ofServer } = await server().metrics.render();
  assert.deepEqual(labelled(ofServer, OF_SERVERS), []);
  const { body: ofAgent } = await agent().metrics.render();
  assert.deepEqual(labelled(ofAgent, OF_AGENTS), []);
});

test('bucket bounds are written as Go writes them', async () => {
  const { body } = await server().metrics.render();
  const bounds = [...body.matchAll(/_server_dial_duration_seconds_bucket\{le="([^"]+)"\}/g)].map((match) => match[1]);
  assert.deepEqual(bounds, ['1e-06', '1e-05', '0.0001', '0.005', '0.025', '0.1', '0.5', '2.5', '12.5', '+Inf']);
});
