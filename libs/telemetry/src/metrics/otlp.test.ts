import assert from 'node:assert/strict';
import { test } from 'node:test';
import { changed, until } from '@isthmus/runtime/testing';
import { TELEMETRY } from '../defaults.ts';
import { exportMetrics } from '../instrument.ts';
import { exported } from '../otlp/settings.ts';
import { loadedSdk, withEnvironment } from '../testing/events.ts';
import { otlpGrpcReceiver, otlpReceiver, type ReceivedMetric } from '../testing/otlp-receiver.ts';
import { dial, server } from './testing.ts';

const ON = { OTEL_METRICS_EXPORTER: 'otlp' };

function options(lines: string[] = []) {
  const say = (_fields: object, message: string) => void lines.push(message);
  const logger = { info: say, warn: say };
  return { program: 'proxy-server', version: '1.2.3', role: 'server', process: 's1', logger };
}

/** Metrics that say `value`, of a type each. */
function page(value = () => 7) {
  const labels = { tenant: 'a' };
  return {
    async collect() {
      const buckets = [
        { le: 0.5, count: 1 },
        { le: 2.5, count: 3 },
        { le: Number.POSITIVE_INFINITY, count: 4 },
      ];
      return [
        {
          name: 'dials_total',
          type: 'counter' as const,
          help: 'Dials.',
          samples: [
            { labels, value: value() },
            { labels: { tenant: 'b' }, value: 1 },
          ],
        },
        { name: 'age', type: 'gauge' as const, help: 'Age.', samples: [{ labels: {}, value: 0.25 }] },
        { name: 'none', type: 'gauge' as const, help: 'No value.', samples: [] },
        { name: 'nan', type: 'gauge' as const, help: '', samples: [{ labels: {}, value: Number.NaN }] },
        {
          name: 'seconds',
          type: 'histogram' as const,
          help: 'Time.',
          samples: [{ labels, value: 9.5, buckets }],
        },
      ];
    },
  };
}

function withoutResource(metrics: readonly ReceivedMetric[] | undefined) {
  return metrics?.map(({ resource, ...metric }) => metric);
}

for (const [protocol, start] of [
  ['http/protobuf', otlpReceiver],
  ['http/json', otlpReceiver],
  ['grpc', otlpGrpcReceiver],
] as const) {
  test(`counters, gauges and histograms are exported as the page has them (${protocol})`, async () => {
    await using receiver = await start();
    using _environment = withEnvironment({
      ...ON,
      OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint,
      OTEL_EXPORTER_OTLP_PROTOCOL: protocol,
    });
    const end = await exportMetrics(page(), options());
    await end();
    assert.equal(receiver.exports.length, 1, 'the last values, when the program ends');
    assert.deepEqual(withoutResource(receiver.exports[0]), [
      {
        name: 'dials_total',
        description: 'Dials.',
        type: 'counter',
        points: [
          { attributes: { tenant: 'a' }, value: 7 },
          { attributes: { tenant: 'b' }, value: 1 },
        ],
      },
      { name: 'age', description: 'Age.', type: 'gauge', points: [{ attributes: {}, value: 0.25 }] },
      {
        name: 'seconds',
        description: 'Time.',
        type: 'histogram',
        points: [{ attributes: { tenant: 'a' }, value: 9.5, buckets: { counts: [1, 2, 1], bounds: [0.5, 2.5] } }],
      },
    ]);
    const resource = receiver.exports[0]?.[0]?.resource;
    assert.equal(resource?.['service.name'], 'proxy-server');
    assert.equal(resource?.['service.version'], '1.2.3');
    assert.equal(resource?.['service.instance.id'], 's1');
    assert.equal(resource?.['isthmus.role'], 'server');
  });
}

test("a server's whole page is exported, with the metrics of the process", async () => {
  await using receiver = await otlpReceiver();
  const { events, metrics } = server({ process: true });
  events.emit('dial:end', 'gateway', dial, { ms: 30 });
  const shown = (await metrics.collect()).filter(({ samples }) => samples.some(({ value }) => Number.isFinite(value)));
  using _environment = withEnvironment({ ...ON, OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint });
  const end = await exportMetrics(metrics, options());
  await end();
  metrics.close();
  const exported = new Map(receiver.exports[0]?.map((metric) => [metric.name, metric]));
  for (const { name, type } of shown) assert.equal(exported.get(name)?.type, type, name);
  const [duration] = exported.get('konnectivity_network_proxy_server_dial_duration_seconds')?.points ?? [];
  assert.deepEqual(duration?.buckets?.counts, [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
  assert.ok(exported.has('process_cpu_seconds_total'));
});

test('current values are exported at each interval', async () => {
  await using receiver = await otlpReceiver();
  let value = 0;
  const endpoint = { OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: `${receiver.endpoint}/v1/metrics` };
  using _environment = withEnvironment({ ...ON, ...endpoint, OTEL_METRIC_EXPORT_INTERVAL: '20' });
  const end = await exportMetrics(
    page(() => ++value),
    options(),
  );
  await until(() => receiver.exports.length >= 2, 'two exports');
  await end();
  const values = receiver.exports.map(([dials]) => dials?.points[0]?.value);
  assert.deepEqual(values.slice(0, 2), [1, 2]);
});

test('a collector that refuses metrics is reported once, and once more when it accepts them again', async () => {
  await using receiver = await otlpReceiver();
  const lines: string[] = [];
  receiver.status = 400;
  using _environment = withEnvironment({
    ...ON,
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint,
    OTEL_METRIC_EXPORT_INTERVAL: '20',
  });
  const end = await exportMetrics(page(), options(lines));
  await until(() => receiver.requests.length >= 3, 'three exports');
  receiver.status = 200;
  await until(() => lines.length === 3, 'three lines');
  await end();
  assert.deepEqual(lines, ['metrics are exported', 'metrics cannot be exported', 'metrics are exported again']);
});

test('a collector that does not answer delays shutdown only by its limit', { timeout: 60_000 }, async () => {
  using _limit = changed(TELEMETRY, { shutdownMs: 1000 });
  await using receiver = await otlpReceiver();
  receiver.status = 0;
  using _environment = withEnvironment({
    ...ON,
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint,
    OTEL_EXPORTER_OTLP_TIMEOUT: '600000',
  });
  const end = await exportMetrics(page(), options());
  await end();
  // On a busy machine, the request may come after the limit.
  await until(() => receiver.requests.length === 1);
});

test('a header that cannot be sent leaves the program without the export, with a line that does not show it', async () => {
  const records: unknown[] = [];
  const say = (...parts: unknown[]) => void records.push(parts);
  using _environment = withEnvironment({
    ...ON,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=hunter2%0A',
  });
  const end = await exportMetrics(page(), { ...options(), logger: { info: say, warn: say } });
  await end();
  assert.equal(records.length, 1);
  assert.match(JSON.stringify(records), /metrics are not exported: bad OTEL_ settings/);
  assert.doesNotMatch(JSON.stringify(records), /hunter2/);
});

test('metrics are exported only if OTEL_METRICS_EXPORTER names otlp', () => {
  const endpoint = { OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: 'http://c' };
  const cases: [Readonly<Record<string, string>>, boolean][] = [
    [endpoint, false],
    [{ ...endpoint, OTEL_METRICS_EXPORTER: 'prometheus' }, false],
    [{ ...ON, OTEL_SDK_DISABLED: 'true' }, false],
    [{ OTEL_METRICS_EXPORTER: 'prometheus,otlp' }, true],
  ];
  for (const [env, asked] of cases) {
    using _environment = withEnvironment(env);
    assert.equal(exported('metrics'), asked, JSON.stringify(env));
  }
});

test('a value that the SDK cannot use is replaced by the default, and a line names its variable', async () => {
  await using receiver = await otlpReceiver();
  const lines: string[] = [];
  using _environment = withEnvironment({
    ...ON,
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'smoke',
    OTEL_METRIC_EXPORT_INTERVAL: '0',
    OTEL_METRIC_EXPORT_TIMEOUT: 'soon',
  });
  const end = await exportMetrics(page(), options(lines));
  await end();
  assert.deepEqual(receiver.requests, ['application/x-protobuf']);
  for (const name of ['the protocol smoke', 'OTEL_METRIC_EXPORT_INTERVAL', 'OTEL_METRIC_EXPORT_TIMEOUT'])
    assert.ok(
      lines.some((line) => line.includes(name)),
      name,
    );
});

test('if metrics are not exported, no SDK is loaded', {
  skip: 'Deno' in globalThis && 'asks Node what it has loaded',
}, () => {
  const source = [
    `import { exportMetrics } from ${JSON.stringify(import.meta.resolve('../instrument.ts'))};`,
    'const logger = { info() {}, warn() {} };',
    "const by = { program: 'x', version: '1', role: 'gateway', process: 'p', logger };",
    'await exportMetrics({ collect: async () => [] }, by);',
  ];
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' };
  assert.deepEqual(loadedSdk(source, endpoint), []);
  assert.notDeepEqual(loadedSdk(source, { ...ON, ...endpoint }), [], 'the SDK would have been seen');
});
