import assert from 'node:assert/strict';
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { changed, until } from '@isthmus/runtime/testing';
import { type Dial, DialError, type DialRequest, pipeline, planeEvents } from '@isthmus/tunnel';
import { endOf, streamOf } from '@isthmus/tunnel/testing';
import { TELEMETRY } from './defaults.ts';
import { openTelemetry, type Tracing } from './instrument.ts';
import { loadedSdk, request, withEnvironment } from './testing/events.ts';
import {
  type OtlpGrpcReceiver,
  otlpGrpcReceiver,
  otlpReceiver,
  type ReceivedSpan,
  spanTree,
} from './testing/otlp-receiver.ts';

const dial: DialRequest = { ...request, caller: { via: 'http-connect', identity: 'CN=kube-apiserver' } };

const TREE = { 'gateway.dial': { 'hub.dial': { 'agent.dial': {} } } };

function options(role: string) {
  const logger = { info() {}, warn() {} };
  return { program: `isthmus-${role}`, version: '1.2.3', role, events: planeEvents(), logger };
}

/** Runs one dial through three programs. Each has its own tracing, and passes on the context as a string. */
async function traceDial(env: Readonly<Record<string, string>>, traceparent?: string): Promise<void> {
  using _environment = withEnvironment(env);
  const [gateway, hub, agent] = await Promise.all(
    ['gateway', 'hub', 'agent'].map((role) => openTelemetry(options(role))),
  );
  assert.ok(gateway?.tracer && hub?.tracer && agent?.tracer);
  const first = gateway.tracer.start('gateway.dial', traceparent === undefined ? dial : { ...dial, traceparent });
  const second = hub.tracer.start('hub.dial', passedOn(first.traceparent));
  const third = agent.tracer.start('agent.dial', passedOn(second.traceparent));
  third.end({ ms: 3, timing: { dnsMs: 1, connectMs: 2 } });
  second.end({ ms: 4, agentId: 'a1', sessionId: 's1', hubId: 'h1' });
  first.end({ ms: 5, agentId: 'a1', sessionId: 's1', hubId: 'h1' });
  await Promise.all([gateway, hub, agent].map((each: Tracing) => each.shutdown()));
}

function passedOn(traceparent: string | undefined): DialRequest {
  assert.ok(traceparent);
  return { ...dial, traceparent };
}

function byName(spans: readonly ReceivedSpan[], name: string): ReceivedSpan {
  const span = spans.find((each) => each.name === name);
  assert.ok(span, name);
  return span;
}

/** Returns what a new process loads of OpenTelemetry, once it has been given an environment. */
function loadedWith(env: Record<string, string>): string[] {
  const source = [
    `import { openTelemetry } from ${JSON.stringify(import.meta.resolve('./instrument.ts'))};`,
    `import { planeEvents } from ${JSON.stringify(import.meta.resolve('@isthmus/tunnel'))};`,
    'const logger = { info() {}, warn() {} };',
    "const by = { program: 'x', version: '1', role: 'gateway', events: planeEvents(), logger };",
    'const { shutdown } = await openTelemetry(by);',
    'await shutdown();',
  ];
  return loadedSdk(source, env);
}

test('if traces are not enabled, nothing is recorded and no SDK is loaded', {
  skip: 'Deno' in globalThis && 'asks Node what it has loaded',
}, async () => {
  using _environment = withEnvironment({ OTEL_SERVICE_NAME: 'x' });
  const { tracer, shutdown } = await openTelemetry(options('gateway'));
  assert.equal(tracer, undefined);
  await shutdown();
  assert.deepEqual(loadedWith({}), []);
  const traced = loadedWith({ OTEL_TRACES_EXPORTER: 'otlp', OTEL_TRACES_SAMPLER: 'always_off' });
  assert.notDeepEqual(traced, [], 'the SDK would have been seen');
});

for (const [protocol, type] of [
  ['http/protobuf', 'application/x-protobuf'],
  ['http/json', 'application/json'],
] as const) {
  test(`a dial through gateway, hub and agent is one trace, exported by ${protocol}`, async () => {
    await using receiver = await otlpReceiver();
    await traceDial({ OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint, OTEL_EXPORTER_OTLP_PROTOCOL: protocol });
    assert.deepEqual(receiver.requests, [type, type, type]);
    assert.deepEqual(spanTree(receiver.spans), TREE);
    assert.equal(new Set(receiver.spans.map((span) => span.traceId)).size, 1);

    const gateway = byName(receiver.spans, 'gateway.dial');
    assert.equal(gateway.kind, 2);
    assert.deepEqual(gateway.status, { code: 0, message: '' });
    assert.deepEqual(gateway.attributes, {
      'server.address': '10.0.0.1',
      'server.port': 443,
      'isthmus.dial.id': dial.id,
      'isthmus.tenant': 'default',
      'isthmus.caller.via': 'http-connect',
      'isthmus.caller.identity': 'CN=kube-apiserver',
      'isthmus.agent.id': 'a1',
      'isthmus.session.id': 's1',
      'isthmus.hub.id': 'h1',
    });
    assert.equal(gateway.resource['service.name'], 'isthmus-gateway');
    assert.equal(gateway.resource['service.version'], '1.2.3');
    assert.equal(gateway.resource['isthmus.role'], 'gateway');
    assert.equal(byName(receiver.spans, 'agent.dial').kind, 3);
  });
}

test('the same trace is exported by grpc', async () => {
  await using receiver = await otlpGrpcReceiver();
  await traceDial({ OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' });
  assert.deepEqual(spanTree(receiver.spans), TREE);
});

test("the caller's trace continues", async () => {
  await using receiver = await otlpReceiver();
  const trace = '0af7651916cd43dd8448eb211c80319c';
  await traceDial({ OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint }, `00-${trace}-b7ad6b7169203331-01`);
  const gateway = byName(receiver.spans, 'gateway.dial');
  assert.equal(gateway.traceId, trace);
  assert.equal(gateway.parentSpanId, 'b7ad6b7169203331');
});

test('a failed dial is an error with its RFC 9209 name', async () => {
  await using receiver = await otlpReceiver();
  using _environment = withEnvironment({ OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint });
  const { tracer, shutdown } = await openTelemetry(options('agent'));
  const error = new DialError('connection_refused', 'dial tcp 10.0.0.1:443: connect: connection refused');
  assert.ok(tracer);
  tracer.start('agent.dial', dial).end({ ms: 1, error, failure: 'error' });
  await shutdown();
  const span = byName(receiver.spans, 'agent.dial');
  assert.equal(span.attributes['error.type'], 'connection_refused');
  assert.equal(span.attributes['isthmus.dial.failure'], 'error_response');
  assert.deepEqual(span.status, { code: 2, message: error.message });
});

test('an unsampled trace is passed on as such and not exported', async () => {
  await using receiver = await otlpReceiver();
  using _environment = withEnvironment({
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint,
    OTEL_TRACES_SAMPLER: 'always_off',
  });
  const { tracer, shutdown } = await openTelemetry(options('gateway'));
  assert.ok(tracer);
  const span = tracer.start('gateway.dial', dial);
  assert.match(span.traceparent ?? '', /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/);
  span.end({ ms: 1 });
  await shutdown();
  assert.deepEqual(receiver.requests, []);
});

test('a collector that refuses spans is reported once, and once more when it accepts them again', async () => {
  await using receiver = await otlpReceiver();
  const lines: string[] = [];
  const told = (_fields: object, message: string) => {
    lines.push(message);
    receiver.status = message === 'traces cannot be exported and are dropped' ? 200 : receiver.status;
  };
  using _environment = withEnvironment({
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint,
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '1',
  });
  const tracing = await openTelemetry({ ...options('hub'), logger: { info: told, warn: told } });
  receiver.status = 400;
  tracing.tracer?.start('hub.dial', dial).end({ ms: 1 });
  await until(() => lines.length === 2, 'two lines');
  tracing.tracer?.start('hub.dial', dial).end({ ms: 1 });
  await until(() => lines.length === 3, 'three lines');
  await tracing.shutdown();
  assert.deepEqual(lines, [
    'traces are exported',
    'traces cannot be exported and are dropped',
    'traces are exported again',
  ]);
});

test('a collector that does not answer delays no dial, and delays shutdown only by its limit', {
  timeout: 60_000,
}, async () => {
  using _limit = changed(TELEMETRY, { shutdownMs: 300 });
  await using receiver = await otlpReceiver();
  receiver.status = 0;
  using _environment = withEnvironment({
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint,
    OTEL_EXPORTER_OTLP_TIMEOUT: '600000',
    OTEL_BSP_MAX_QUEUE_SIZE: '100',
  });
  const { tracer, shutdown } = await openTelemetry(options('hub'));
  // All of this runs in one event loop tick, so it cannot wait for the collector.
  assert.ok(tracer);
  for (let i = 0; i < 5000; i++) tracer.start('hub.dial', dial).end({ ms: 1 });
  await shutdown();
  assert.deepEqual(receiver.spans, []);
});

test('bad exporter settings leave the program without traces, with a warning', async () => {
  const warnings: string[] = [];
  const logger = { info() {}, warn: (_fields: object, message: string) => void warnings.push(message) };
  using _environment = withEnvironment({
    OTEL_EXPORTER_OTLP_ENDPOINT: 'not a url',
    OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
  });
  const { tracer } = await openTelemetry({ ...options('hub'), logger });
  assert.equal(tracer, undefined);
  assert.equal(warnings.length, 1);
});

const established: Dial = async () => {
  const stream = new PassThrough();
  const end = endOf(stream);
  return { end, agentId: 'a1', sessionId: 's1', hubId: 'h1', timing: {} };
};

const RECEIVERS: readonly [
  protocol: string,
  start: () => Promise<Pick<OtlpGrpcReceiver, 'endpoint' | 'spans'> & AsyncDisposable>,
][] = [
  ['http/protobuf', otlpReceiver],
  ['grpc', otlpGrpcReceiver],
];

for (const [protocol, start] of RECEIVERS) {
  const name = `a collector that stops amid a run hinders no dial, and is reported once (${protocol})`;
  // Skipped on Deno 2.9: its HTTP/2, which this collector uses, ends the process when a connection ends during requests.
  test(name, { skip: protocol === 'grpc' && 'Deno' in globalThis }, async () => {
    const receiver = await start();
    using _environment = withEnvironment({
      OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint,
      OTEL_EXPORTER_OTLP_PROTOCOL: protocol,
      OTEL_BSP_SCHEDULE_DELAY: '20',
      OTEL_EXPORTER_OTLP_TIMEOUT: '2000',
      OTEL_BSP_MAX_QUEUE_SIZE: '600',
    });
    const lines: string[] = [];
    let dropped = 0;
    const say = (_fields: object, message: string) => {
      if (/^OpenTelemetry: Dropped \d+ spans/.test(message)) dropped++;
      else lines.push(message);
    };
    const events = planeEvents();
    const tracing = await openTelemetry({
      events,
      program: 'frontend-gw',
      version: '1',
      role: 'gateway',
      logger: { info: say, warn: say },
    });
    const dial = pipeline({ role: 'gateway', open: established, observation: { events, tracer: tracing.tracer } });
    await dial({ ...request });
    await until(() => receiver.spans.length > 0, 'a span');

    await receiver[Symbol.asyncDispose]();
    let turns = 0;
    const turn = setImmediate(() => turns++);
    const dials = await Promise.all(Array.from({ length: 2000 }, () => dial({ ...request })));
    clearImmediate(turn);
    assert.equal(turns, 0, 'no dial waits for anything that comes from outside');
    await until(() => lines.length === 2, 'two lines');
    await dial({ ...request });
    await tracing.shutdown();
    assert.deepEqual(lines, ['traces are exported', 'traces cannot be exported and are dropped']);
    assert.ok(dropped > 0, 'a line says how many spans found no place');
    for (const { end } of dials) {
      const closed = once(streamOf(end), 'close');
      streamOf(end).destroy();
      await closed;
    }
  });
}
