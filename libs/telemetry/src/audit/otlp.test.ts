import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer as createHttp, type Server, type ServerResponse } from 'node:http';
import { createServer as createHttp2, type Http2Server } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { DialError, type DialRequest, dialLog, planeEvents } from '@isthmus/tunnel';
import { createLogger } from '../logging/logger.ts';
import { type Environment, logSettings } from '../otlp/settings.ts';
import { request } from '../testing/events.ts';
import { refuse } from '../testing/otlp-receiver.ts';
import { auditTrail } from './trail.ts';

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const SPAN = 'b7ad6b7169203331';
const ENDPOINT = 'OTEL_EXPORTER_OTLP_ENDPOINT';

const dial: DialRequest = {
  ...request,
  caller: { via: 'grpc', identity: 'uds' },
  log: dialLog(),
  traceparent: `00-${TRACE}-${SPAN}-01`,
};
const error = new DialError('dns_error', 'no such host');

/** A collector, and the HTTP status that it answers with; 0 for no answer. */
class Collector implements AsyncDisposable {
  status = 200;
  readonly bodies: Buffer[] = [];
  readonly paths: string[] = [];
  readonly unanswered: ServerResponse[] = [];
  readonly #server: Server | Http2Server;

  constructor(server: Server | Http2Server) {
    this.#server = server;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await refuse(this.unanswered);
    } finally {
      const closed = once(this.#server, 'close');
      this.#server.close();
      if ('closeAllConnections' in this.#server) this.#server.closeAllConnections();
      await closed;
    }
  }
}

async function collector(): Promise<Collector> {
  const server = createHttp(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    collector.bodies.push(Buffer.concat(chunks));
    collector.paths.push(`${request.url} ${request.headers['content-type']}`);
    if (collector.status !== 0) response.writeHead(collector.status).end();
    else collector.unanswered.push(response);
  });
  const collector = new Collector(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return collector;
}

/** Starts a gRPC collector. A request has a five-byte head before its message, and gets an empty answer. */
async function grpcCollector(): Promise<Collector> {
  const server = createHttp2();
  const collector = new Collector(server);
  server.on('stream', async (stream, headers) => {
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    collector.bodies.push(Buffer.concat(chunks));
    collector.paths.push(`${headers[':path']} ${headers['content-type']}`);
    stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    stream.end(new Uint8Array(5));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return collector;
}

/** Starts an audit over OTLP only. `logged` returns the messages of its log. */
async function audited(env: Environment) {
  const events = planeEvents();
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  const logger = createLogger({ name: 'gateway', format: 'json', verbosity: 4, destination });
  const trail = await auditTrail(events, {
    process: 'gw-1',
    of: { dials: true, others: false },
    program: 'frontend-gw',
    role: 'gateway',
    version: '1',
    logger,
    log: '',
    otlp: true,
    env,
  });
  assert.ok(trail);
  const dropped: number[] = [];
  events.on('audit:dropped', (sink, records) => {
    assert.equal(sink, 'otlp');
    dropped.push(records);
  });
  const fail = (count = 1) => {
    for (let i = 0; i < count; i++) events.emit('dial:end', 'gateway', dial, { ms: 1, error });
  };
  return { events, trail, dropped, fail, logged: () => lines.map((line) => JSON.parse(line).msg) };
}

test('an audit record becomes one OTLP log record, in the trace of its dial', async () => {
  await using receiver = await collector();
  const { trail, fail } = await audited({ [ENDPOINT]: receiver.endpoint, OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' });
  fail();
  await trail.close();
  assert.deepEqual(receiver.paths, ['/v1/logs application/json']);
  const [{ resource, scopeLogs }] = JSON.parse(String(receiver.bodies[0])).resourceLogs;
  const [{ logRecords }] = scopeLogs;
  assert.equal(logRecords.length, 1);
  const [{ traceId, spanId, eventName, severityText, body, attributes }] = logRecords;
  assert.deepEqual([traceId, spanId, eventName, severityText], [TRACE, SPAN, 'isthmus.dial', 'WARN']);
  const text = (list: { key: string; value: { stringValue?: string } }[], name: string) =>
    list.find(({ key }) => key === name)?.value.stringValue;
  assert.equal(text(resource.attributes, 'service.name'), 'frontend-gw');
  assert.equal(text(resource.attributes, 'service.instance.id'), 'gw-1');
  assert.equal(text(attributes, 'error.type'), 'dns_error');
  assert.equal(text(attributes, 'isthmus.caller.identity'), 'uds');
  const { values } = body.kvlistValue;
  assert.equal(text(values, 'outcome'), 'dns_error');
  assert.equal(text(values, 'destination'), '10.0.0.1:443');
  assert.equal(text(values, 'dial'), dial.id);
});

for (const [protocol, open, path] of [
  ['http/protobuf', collector, '/v1/logs application/x-protobuf'],
  ['grpc', grpcCollector, '/opentelemetry.proto.collector.logs.v1.LogsService/Export application/grpc'],
] as const) {
  test(`records go over ${protocol}`, async () => {
    await using receiver = await open();
    const { trail, fail, dropped } = await audited({
      [ENDPOINT]: receiver.endpoint,
      OTEL_EXPORTER_OTLP_PROTOCOL: protocol,
    });
    fail(3);
    await trail.close();
    assert.deepEqual(receiver.paths, [path]);
    assert.equal(String(receiver.bodies[0]).split('isthmus.dial').length - 1, 6, 'three names and three attributes');
    assert.deepEqual(dropped, []);
  });
}

test('records that a collector refuses are lost, counted and logged, and its recovery is logged too', async () => {
  await using receiver = await collector();
  receiver.status = 400;
  const { trail, fail, dropped, logged } = await audited({
    [ENDPOINT]: receiver.endpoint,
    OTEL_BLRP_SCHEDULE_DELAY: '1',
  });
  fail(5);
  await until(() => dropped.length > 0, 'lost records');
  receiver.status = 200;
  fail();
  await trail.close();
  assert.deepEqual(dropped, [5]);
  const said = ['audit records are exported', 'audit records are lost', 'audit records are written again'];
  assert.deepEqual(logged(), said);
});

test('a collector that does not answer costs no more memory than the queue, and does not delay shutdown', {
  timeout: 60_000,
}, async () => {
  await using silent = await collector();
  silent.status = 0;
  const patient = { OTEL_BLRP_MAX_QUEUE_SIZE: '100', OTEL_EXPORTER_OTLP_TIMEOUT: '600000' };
  const { trail, fail, dropped, logged } = await audited({ [ENDPOINT]: silent.endpoint, ...patient });
  fail(150);
  assert.equal(dropped.length, 50);
  await trail.close();
  assert.equal(
    dropped.reduce((sum, records) => sum + records, 0),
    150,
  );
  assert.ok(logged().includes('audit records are lost'));
});

test('a flag or OTEL_LOGS_EXPORTER enables the export, an endpoint alone does not', () => {
  const endpoint = { [ENDPOINT]: 'http://c:4318' };
  const cases: [Environment, boolean, string | undefined][] = [
    [{}, false, undefined],
    [endpoint, false, undefined],
    [endpoint, true, 'http://c:4318/v1/logs'],
    [{}, true, 'http://localhost:4318/v1/logs'],
    [{ ...endpoint, OTEL_LOGS_EXPORTER: 'otlp' }, false, 'http://c:4318/v1/logs'],
    [{ ...endpoint, OTEL_LOGS_EXPORTER: 'none' }, true, undefined],
    [{ ...endpoint, OTEL_SDK_DISABLED: 'true' }, true, undefined],
    [{ ...endpoint, OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: 'http://logs/x' }, true, 'http://logs/x'],
    [{ ...endpoint, OTEL_EXPORTER_OTLP_LOGS_PROTOCOL: 'grpc' }, true, 'http://c:4318'],
  ];
  for (const [env, asked, url] of cases) assert.equal(logSettings(env, asked)?.url, url, JSON.stringify(env));
});
