import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2, { type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import net, { type AddressInfo, type Socket } from 'node:net';
import { test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { GrpcCalls, type GrpcSettings } from './grpc.ts';
import { OtelEnvironment } from './settings.ts';

const PLAIN: Omit<GrpcSettings, 'url'> = { headers: {}, gzip: false, ca: undefined, cert: undefined, key: undefined };
const PATH = '/some.Service/Export';
const MESSAGE = Buffer.from('a message');

type Answer = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, body: Buffer) => void;

/** Starts a server with Node's own HTTP/2, and returns it with calls to it. */
async function serving(answer: Answer, settings: Partial<GrpcSettings> = {}) {
  const sockets = new Set<Socket>();
  const server = http2.createServer();
  server.on('connection', (socket: Socket) => sockets.add(socket.on('error', () => {})));
  server.on('stream', async (stream, headers) => {
    stream.on('error', () => {});
    const chunks: Uint8Array[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    answer(stream, headers, Buffer.concat(chunks));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const calls = new GrpcCalls({ ...PLAIN, url: `http://127.0.0.1:${port}`, ...settings }, PATH);
  return {
    calls,
    sockets,
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close');
      calls.close();
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

function succeed(stream: ServerHttp2Stream): void {
  stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
  stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
  stream.end(new Uint8Array(5));
}

test('a call sends its message in a gRPC frame, with the configured headers', async () => {
  const seen: { headers: IncomingHttpHeaders; body: Buffer }[] = [];
  const headers = { authorization: 'Bearer x' };
  await using server = await serving(
    (stream, headers, body) => {
      seen.push({ headers, body });
      succeed(stream);
    },
    { headers },
  );
  await server.calls.send(MESSAGE, 60_000);
  await server.calls.send(MESSAGE, 60_000);
  assert.equal(server.sockets.size, 1, 'one connection for both');
  assert.equal(seen.length, 2);
  const [first] = seen;
  assert.ok(first);
  assert.deepEqual(first.body, Buffer.concat([Buffer.of(0, 0, 0, 0, MESSAGE.length), MESSAGE]));
  assert.equal(first.headers[':path'], PATH);
  assert.equal(first.headers['content-type'], 'application/grpc');
  assert.equal(first.headers.te, 'trailers');
  assert.equal(first.headers.authorization, 'Bearer x');
});

test('a message is compressed if so configured', async () => {
  const seen: Buffer[] = [];
  await using server = await serving(
    (stream, headers, body) => {
      assert.equal(headers['grpc-encoding'], 'gzip');
      seen.push(body);
      succeed(stream);
    },
    { gzip: true },
  );
  await server.calls.send(MESSAGE, 60_000);
  const [body] = seen;
  assert.ok(body);
  assert.equal(body[0], 1);
  assert.equal(body.readUInt32BE(1), body.length - 5);
  assert.deepEqual(gunzipSync(body.subarray(5)), MESSAGE);
});

test("a call fails with the collector's gRPC status, with or without a body before it, or with its HTTP status", async () => {
  const answers: Answer[] = [
    (stream) =>
      stream.respond({ ':status': 200, 'grpc-status': '16', 'grpc-message': 'who are you' }, { endStream: true }),
    (stream) => {
      stream.respond({ ':status': 200 }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '8', 'grpc-message': 'too much' }));
      stream.end(new Uint8Array(5));
    },
    (stream) => stream.respond({ ':status': 502 }, { endStream: true }),
    succeed,
  ];
  let turn = 0;
  await using server = await serving((stream, ...rest) => answers[turn++]?.(stream, ...rest));
  await assert.rejects(server.calls.send(MESSAGE, 60_000), /gRPC status 16: who are you/);
  await assert.rejects(server.calls.send(MESSAGE, 60_000), /gRPC status 8: too much/);
  await assert.rejects(server.calls.send(MESSAGE, 60_000), /HTTP status 502/);
  await server.calls.send(MESSAGE, 60_000);
  assert.equal(server.sockets.size, 1, 'a refusal is no reason for another connection');
});

test('after an unanswered call the next one opens a new connection', async (t) => {
  let calls = 0;
  const asked = Promise.withResolvers<void>();
  await using server = await serving((stream) => {
    if (++calls > 1) succeed(stream);
    else asked.resolve();
  });
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const late = assert.rejects(server.calls.send(MESSAGE, 100), /no answer within 100 ms/);
  await asked.promise;
  t.mock.timers.tick(100);
  await late;
  t.mock.timers.reset();
  await server.calls.send(MESSAGE, 60_000);
  assert.equal(server.sockets.size, 2);
});

test('a connection that sends GOAWAY and ends later does not affect the next connection', async () => {
  let begun = 0;
  const asked = Promise.withResolvers<void>();
  await using server = await serving((stream) => {
    if (++begun > 1) return succeed(stream);
    stream.session?.goaway(0, stream.id);
    asked.resolve();
  });
  const lost = assert.rejects(server.calls.send(MESSAGE, 60_000));
  await asked.promise;
  const [old] = server.sockets;
  // A call that crosses the GOAWAY on its way is refused.
  while (server.sockets.size < 2) await server.calls.send(MESSAGE, 60_000).catch(() => {});
  old?.destroy();
  await lost;
  await new Promise(setImmediate);
  await server.calls.send(MESSAGE, 60_000);
  assert.equal(server.sockets.size, 2);
});

/** A plain TCP port. */
async function listening(accept: (socket: Socket) => void) {
  const server = net.createServer((socket) => accept(socket.on('error', () => {}).resume()));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close');
      server.close();
      await closed;
    },
  };
}

test("a collector that accepts the connection and says nothing delays a call no longer than the call's timeout", async () => {
  const sockets: Socket[] = [];
  await using server = await listening((socket) => sockets.push(socket));
  for (const scheme of ['http', 'https']) {
    const calls = new GrpcCalls({ ...PLAIN, url: `${scheme}://127.0.0.1:${server.port}` }, PATH);
    await assert.rejects(calls.send(MESSAGE, 100), /no answer within 100 ms/);
    calls.close();
  }
  for (const socket of sockets) socket.destroy();
});

test('an unreachable collector is an error, and so is a connection that breaks during a call', async () => {
  const server = await listening((socket) => socket.once('data', () => socket.destroy()));
  const calls = new GrpcCalls({ ...PLAIN, url: `http://127.0.0.1:${server.port}` }, PATH);
  await assert.rejects(calls.send(MESSAGE, 60_000), /closed|ended|ECONNRESET/);
  await server[Symbol.asyncDispose]();
  await assert.rejects(calls.send(MESSAGE, 60_000), { code: 'ECONNREFUSED' });
});

test('environment variables configure the calls, and those of the signal take precedence', () => {
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4317',
    OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
    OTEL_EXPORTER_OTLP_HEADERS: 'Authorization=Bearer%20x,tenant=a',
    OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'tenant=b',
    OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip',
    OTEL_EXPORTER_OTLP_CERTIFICATE: '/ca.pem',
    OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: '/traces-ca.pem',
  };
  assert.deepEqual(new OtelEnvironment(env).otlp('traces').grpc, {
    url: 'https://collector:4317',
    headers: { authorization: 'Bearer x', tenant: 'b' },
    gzip: true,
    ca: '/traces-ca.pem',
    cert: undefined,
    key: undefined,
  });
  const insecure = new OtelEnvironment({ ...env, OTEL_EXPORTER_OTLP_INSECURE: 'true' });
  assert.equal(insecure.otlp('metrics').grpc?.url, 'http://collector:4317');
  assert.equal(insecure.otlp('metrics').grpc?.ca, '/ca.pem');
});

test('a bad list of headers causes a warning without its text, which may be a secret', () => {
  const env = new OtelEnvironment({
    OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
    OTEL_EXPORTER_OTLP_HEADERS: 'Bearer-hunter2',
  });
  assert.deepEqual(env.otlp('traces').grpc?.headers, {});
  assert.deepEqual(env.warnings, ['OTEL_EXPORTER_OTLP_HEADERS has a bad entry: ignoring all of it']);
});

test('a header that HTTP cannot carry is left out, with a warning that does not show its value', () => {
  const headers = 'authorization=hunter2%0A,:path=x,tenant=a';
  const env = new OtelEnvironment({ OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc', OTEL_EXPORTER_OTLP_HEADERS: headers });
  assert.deepEqual(env.otlp('traces').grpc?.headers, { tenant: 'a' });
  const warning = 'OTEL_EXPORTER_OTLP_HEADERS has a header that HTTP cannot carry: using only the others';
  assert.deepEqual(env.warnings, [warning, warning]);
});
