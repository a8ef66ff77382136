import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Environment, traceSettings } from './settings.ts';

const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318' };

test('traces are enabled by an endpoint or by naming the exporter', () => {
  const cases: [Environment, boolean][] = [
    [{}, false],
    [{ OTEL_SERVICE_NAME: 'x', OTEL_TRACES_SAMPLER: 'always_on' }, false],
    [ENDPOINT, true],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: ' ' }, false],
    [{ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://c' }, true],
    [{ OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: 'http://c' }, false],
    [{ OTEL_TRACES_EXPORTER: 'otlp' }, true],
    [{ OTEL_TRACES_EXPORTER: 'console, otlp' }, true],
    [{ ...ENDPOINT, OTEL_TRACES_EXPORTER: 'none' }, false],
    [{ ...ENDPOINT, OTEL_SDK_DISABLED: 'TRUE' }, false],
    [{ ...ENDPOINT, OTEL_SDK_DISABLED: 'no' }, true],
  ];
  for (const [env, asked] of cases) assert.equal(traceSettings(env) !== undefined, asked, JSON.stringify(env));
});

test('the path of traces is appended to the endpoint for all signals, but not to the endpoint for traces', () => {
  const cases: [Environment, string][] = [
    [ENDPOINT, 'http://c:4318/v1/traces'],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c/base/' }, 'http://c/base/v1/traces'],
    [{ ...ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://t/' }, 'http://t/'],
    [{ ...ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }, 'http://c:4318'],
    [{ OTEL_TRACES_EXPORTER: 'otlp' }, 'http://localhost:4318/v1/traces'],
    [{ OTEL_TRACES_EXPORTER: 'otlp', OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }, 'http://localhost:4317'],
  ];
  for (const [env, url] of cases) assert.equal(traceSettings(env)?.url, url, JSON.stringify(env));
});

test('the protocol for traces takes precedence over the one for all signals', () => {
  const env = { ...ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc', OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'http/json' };
  assert.equal(traceSettings(env)?.protocol, 'http/json');
});

test('a bad value causes a warning with its name, and the default is used', () => {
  const settings = traceSettings({
    ...ENDPOINT,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'smoke',
    OTEL_TRACES_SAMPLER: 'some',
    OTEL_TRACES_SAMPLER_ARG: '2',
    OTEL_BSP_MAX_QUEUE_SIZE: 'many',
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '0',
    OTEL_RESOURCE_ATTRIBUTES: 'a=1,b',
  });
  assert.equal(settings?.protocol, 'http/protobuf');
  assert.deepEqual(settings?.sampler, { name: 'parentbased_always_on', ratio: 1 });
  assert.equal(settings?.batch.maxQueueSize, 2048);
  assert.equal(settings?.batch.maxExportBatchSize, 512);
  assert.deepEqual(settings?.resource, {});
  const named = settings?.warnings.map((warning) => warning.split(/[= ]/)[0]).sort();
  assert.deepEqual(named, [
    'OTEL_BSP_MAX_EXPORT_BATCH_SIZE',
    'OTEL_BSP_MAX_QUEUE_SIZE',
    'OTEL_EXPORTER_OTLP_PROTOCOL',
    'OTEL_RESOURCE_ATTRIBUTES',
    'OTEL_TRACES_SAMPLER',
    'OTEL_TRACES_SAMPLER_ARG',
  ]);
});

test('resource attributes are decoded, and OTEL_SERVICE_NAME takes precedence over them', () => {
  const settings = traceSettings({
    ...ENDPOINT,
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=a%20b, service.name=one,empty=,',
    OTEL_SERVICE_NAME: 'two',
  });
  assert.deepEqual(settings?.resource, { 'deployment.environment.name': 'a b', 'service.name': 'two', empty: '' });
});
