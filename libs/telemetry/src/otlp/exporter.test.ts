import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2, { type ServerHttp2Stream } from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';
import { test } from 'node:test';
import { type GrpcMethod, grpcExporter, PartlyRejected } from './exporter.ts';

const PATH = '/some.Service/Export';

type Turn = (stream: ServerHttp2Stream) => void;

/** Serializes texts as one message. The first byte of an answer is the number of rejected texts. */
const texts = {
  serializeRequest: (items: string[]) => Buffer.from(items.join()),
  deserializeResponse: ([rejected]: Uint8Array) =>
    rejected ? { partialSuccess: { rejectedSpans: rejected, errorMessage: 'too long' } } : {},
};

const method: GrpcMethod<string[]> = {
  path: PATH,
  serializer: texts,
  size: ({ length }) => length,
};

const ok = answer('0');

function answer(status: string, message: Uint8Array = Buffer.alloc(0)): Turn {
  return (stream) => {
    stream.respond({ ':status': 200 }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': status }));
    stream.end(Buffer.concat([Buffer.of(0, 0, 0, 0, message.length), message]));
  };
}

/** Starts a collector that answers each call with the next of its turns, and then repeats the last one. */
async function collector(...turns: Turn[]) {
  const sockets = new Set<Socket>();
  const server = http2.createServer();
  let calls = 0;
  server.on('connection', (socket: Socket) => sockets.add(socket.on('error', () => {})));
  server.on('stream', (stream) => {
    stream.on('error', () => {}).resume();
    turns[Math.min(calls++, turns.length - 1)]?.(stream);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    get calls() {
      return calls;
    },
    send(timeoutMillis: number, ...items: string[]) {
      const grpc = { url, headers: {}, gzip: false, ca: undefined, cert: undefined, key: undefined };
      const settings = { protocol: 'grpc', url, timeoutMillis, grpc } as const;
      const exporter = grpcExporter(settings, method);
      const result = new Promise<{ code: number; error?: Error }>((resolve) => exporter.export(items, resolve));
      return { exporter, result: result.finally(() => exporter.shutdown()) };
    },
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close');
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

test('a batch is retried after UNAVAILABLE, an overloaded proxy, and a broken connection', async () => {
  const busy: Turn = (stream) => stream.respond({ ':status': 503 }, { endStream: true });
  await using server = await collector(answer('14'), busy, (stream) => stream.session?.destroy(), ok);
  assert.deepEqual(await server.send(60_000, 'a').result, { code: 0 });
  assert.equal(server.calls, 4);
});

test('a batch is sent only once if the collector accepts it, or refuses it for good', async () => {
  for (const [status, code] of [
    ['3', 1],
    ['16', 1],
    ['0', 0],
  ] as const) {
    await using server = await collector(answer(status));
    assert.equal((await server.send(60_000, 'a').result).code, code, status);
    assert.equal(server.calls, 1);
  }
});

test('a batch for a collector that stays unavailable is retried until the timeout', async (t) => {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  // By the exporter's clock each answer takes 25 s.
  await using server = await collector((stream) => {
    now += 25_000;
    answer('14')(stream);
  });
  const { error } = await server.send(60_000, 'a').result;
  assert.match(String(error), /gRPC status 14/);
  assert.equal(server.calls, 3, 'at 0, 25 and 50 s');
});

test('an exporter stops retrying when it shuts down', async () => {
  const ended: (() => void)[] = [];
  await using server = await collector((stream) => {
    answer('14')(stream);
    stream.once('close', () => ended.pop()?.());
  });
  const { exporter, result } = server.send(60_000, 'a');
  ended.push(() => exporter.shutdown());
  assert.equal((await result).code, 1);
  assert.equal(server.calls, 1);
});

test('a partly rejected batch is an error that says how many items were rejected', async () => {
  await using server = await collector(answer('0', Buffer.of(2)));
  const { error } = await server.send(60_000, 'a', 'b', 'c').result;
  assert.ok(error instanceof PartlyRejected);
  assert.equal(error.rejected, 2);
  assert.equal(error.message, 'the collector rejected 2 of 3: too long');
  assert.equal(server.calls, 1);
});
