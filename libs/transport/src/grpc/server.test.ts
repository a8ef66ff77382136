import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2, { type ClientHttp2Session, type ClientHttp2Stream, type IncomingHttpHeaders } from 'node:http2';
import net, { type AddressInfo, type Socket } from 'node:net';
import { afterEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Client, credentials, Metadata } from '@grpc/grpc-js';
import { decodePacket, encodePacket, type Packet } from '@isthmus/proto';
import { deferred, planeEvents } from '@isthmus/tunnel';
import type { PacketSink } from '../packets/channel.ts';
import type { ServerCall } from './call.ts';
import { type GrpcServerOptions, grpcServer } from './server.ts';
import { StatusError } from './status.ts';

const DEADLINE_MS = 5_000;
const WINDOW = 64 * 1024;
const PATH = '/Test/Echo';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function until(what: string, condition: () => boolean): Promise<void> {
  const end = performance.now() + DEADLINE_MS;
  while (!condition()) {
    assert.ok(performance.now() < end, `still not: ${what}`);
    await delay(1);
  }
}

/** Sends back every packet; ends with the caller. */
function echo(call: ServerCall): PacketSink {
  return { packet: (packet) => void call.send(packet), drain() {}, close() {} };
}

async function serve(
  serveCall: (call: ServerCall) => void = (call) => call.start(echo(call)),
  more: Partial<GrpcServerOptions> = {},
) {
  const events = planeEvents();
  const server = grpcServer({
    services: [{ path: PATH, serve: serveCall }],
    ...{ events, name: 'test', keepaliveMs: 3_600_000, streamWindow: WINDOW, ...more },
  });
  const sockets = new Set<Socket>();
  const listener = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    sockets.add(socket.on('error', () => {}));
    server.accept(socket);
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  cleanups.push(async () => {
    listener.close();
    await server.close(0);
    for (const socket of sockets) socket.destroy();
  });
  return { server, events, sockets, port: (listener.address() as AddressInfo).port };
}

function connect(port: number): ClientHttp2Session {
  const session = http2.connect(`http://127.0.0.1:${port}`);
  session.on('error', () => {});
  cleanups.push(() => session.destroy());
  return session;
}

const HEAD = { ':method': 'POST', ':path': PATH, 'content-type': 'application/grpc', te: 'trailers' };

interface Reply {
  readonly stream: ClientHttp2Stream;
  readonly head: Promise<IncomingHttpHeaders>;
  /** The trailers, or the head where there is nothing else. */
  readonly status: Promise<IncomingHttpHeaders>;
  readonly packets: Packet[];
}

function open(session: ClientHttp2Session, over: Record<string, string> = {}): Reply {
  const stream = session.request({ ...HEAD, ...over });
  stream.on('error', () => {});
  const head = deferred<IncomingHttpHeaders>();
  const status = deferred<IncomingHttpHeaders>();
  const packets: Packet[] = [];
  let rest = Buffer.alloc(0);
  stream.on('response', (fields) => {
    head.resolve(fields);
    if (fields['grpc-status'] !== undefined) status.resolve(fields);
  });
  stream.on('trailers', (fields) => status.resolve(fields));
  stream.on('data', (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      const end = 5 + rest.readUInt32BE(1);
      packets.push(decodePacket(rest.subarray(5, end)));
      rest = rest.subarray(end);
    }
  });
  return { stream, packets, head: head.promise, status: status.promise };
}

function message(packet: Packet, flag = 0): Buffer {
  const bytes = encodePacket(packet, 5);
  bytes[0] = flag;
  bytes.writeUInt32BE(bytes.length - 5, 1);
  return bytes;
}

const data = (connectID: bigint, bytes: Buffer): Packet => ({ type: 'DATA', connectID, error: '', data: bytes });

const REFUSALS: readonly [what: string, over: Record<string, string>, http: number, grpc: number, text: RegExp][] = [
  ['another content type', { 'content-type': 'text/html' }, 415, 3, /invalid gRPC request content-type "text\/html"/],
  ['a content type that only begins alike', { 'content-type': 'application/grpc-web' }, 415, 3, /content-type/],
  ['GET', { ':method': 'GET' }, 405, 13, /:method "GET" which should be POST/],
  ['an unknown method', { ':path': '/Test/Nothing' }, 200, 12, /unknown method \/Test\/Nothing/],
  ['a path that is none', { ':path': 'x' }, 200, 12, /unknown method/],
  ['a timeout that is none', { 'grpc-timeout': '5' }, 400, 13, /malformed grpc-timeout/],
  ['compression', { 'grpc-encoding': 'gzip' }, 200, 12, /not installed for grpc-encoding "gzip"/],
];

for (const [what, over, http, grpc, text] of REFUSALS) {
  test(`a call with ${what} is answered by trailers alone`, async () => {
    const { port } = await serve();
    const { head, packets } = open(connect(port), over);
    const fields = await head;
    assert.equal(fields[':status'], http);
    assert.equal(fields['grpc-status'], String(grpc));
    assert.match(decodeURIComponent(String(fields['grpc-message'])), text);
    assert.deepEqual(packets, []);
  });
}

test('a peer is told how many streams its connection may have, and an ended one makes room', async () => {
  const { port } = await serve(undefined, { maxStreams: 2 });
  const session = connect(port);
  await once(session, 'remoteSettings');
  assert.equal(session.remoteSettings.maxConcurrentStreams, 2);
  const calls = [1n, 2n, 3n].map((id) => {
    const call = open(session);
    call.stream.write(message(data(id, Buffer.from('x'))));
    return call;
  }) as [Reply, Reply, Reply];
  await Promise.all([calls[0].head, calls[1].head]);
  // Node's own client keeps to the limit: the third is on its way when there is room.
  const order: string[] = [];
  void calls[0].status.then(() => order.push('first ends'));
  const third = calls[2].head.then(() => order.push('third is served'));
  calls[0].stream.end();
  await third;
  assert.deepEqual(order, ['first ends', 'third is served']);
});

for (const type of ['application/grpc', 'application/grpc+proto', 'application/grpc;charset=utf-8']) {
  test(`${type} is gRPC`, async () => {
    const { port } = await serve();
    const { stream, head } = open(connect(port), { 'content-type': type });
    stream.end();
    assert.equal((await head)['grpc-status'], '0');
  });
}

test('a message is the same wherever DATA frames split it', async () => {
  const { port } = await serve();
  const packet = data(7n, Buffer.from('split'));
  const bytes = message(packet);
  const session = connect(port);
  for (let first = 1; first < bytes.length; first++) {
    const { stream, packets, status } = open(session);
    stream.write(bytes.subarray(0, first));
    await new Promise((resolve) => session.ping(resolve));
    stream.end(Buffer.concat([bytes.subarray(first), bytes, bytes]));
    assert.equal((await status)['grpc-status'], '0');
    assert.deepEqual(packets, [packet, packet, packet], `split at ${first}`);
  }
});

const BAD_MESSAGES: readonly [what: string, bytes: Buffer, grpc: number, text: RegExp][] = [
  ['a compressed message', message({ type: 'DRAIN' }, 1), 13, /compressed flag/],
  ['a message of 4 GiB', Buffer.of(0, 255, 255, 255, 255, 1), 8, /larger than max/],
  ['a message that is no packet', Buffer.of(0, 0, 0, 0, 3, 0x22, 0xff, 0xff), 3, /bad packet/],
];

for (const [what, bytes, grpc, text] of BAD_MESSAGES) {
  test(`${what} ends its call, before and behind an answer`, async () => {
    const { port } = await serve();
    const session = connect(port);
    for (const good of [[], [message({ type: 'DRAIN' })]]) {
      const { stream, status, packets } = open(session);
      stream.write(Buffer.concat([...good, bytes]));
      const fields = await status;
      assert.equal(fields['grpc-status'], String(grpc));
      assert.match(decodeURIComponent(String(fields['grpc-message'])), text);
      assert.equal(packets.length, good.length);
    }
  });
}

test('a call that ends amid a message is told so', async () => {
  const { port } = await serve();
  const { stream, status } = open(connect(port));
  stream.end(message({ type: 'DRAIN' }).subarray(0, 6));
  assert.equal((await status)['grpc-status'], '13');
});

test('a status keeps every character of its text', async () => {
  const text = '100 % “wahr”\nä';
  const { port } = await serve((call) => call.fail(new StatusError('Unavailable', text)));
  const { head } = open(connect(port));
  const fields = await head;
  assert.equal(fields['grpc-status'], '14');
  assert.equal(decodeURIComponent(String(fields['grpc-message'])), text);
});

test('a call may take as long as its caller allows', async () => {
  const { port } = await serve();
  const { status } = open(connect(port), { 'grpc-timeout': '50m' });
  assert.equal((await status)['grpc-status'], '4');
});

test('metadata comes as it was sent, values of one name apart, binary ones in base64', async () => {
  const came = deferred<ServerCall>();
  const { port } = await serve((call) => {
    came.resolve(call);
    call.respond([['answer', 'yes']]);
    call.end();
  });
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
  cleanups.push(() => client.close());
  const metadata = new Metadata();
  metadata.add('name', 'one');
  metadata.add('name', 'two');
  metadata.add('trace-bin', Buffer.of(0, 255));
  const same = (bytes: Buffer) => bytes;
  const call = client.makeBidiStreamRequest(PATH, same, same, metadata);
  call.on('data', () => {}).on('error', () => {});
  const [answer] = (await once(call, 'metadata')) as [Metadata];
  assert.deepEqual(answer.get('answer'), ['yes']);
  const sent = (await came.promise).metadata;
  assert.deepEqual(sent.get('name'), ['one', 'two']);
  assert.deepEqual(sent.get('trace-bin'), ['AP8=']);
  assert.deepEqual(sent.get('none'), []);
});

test('a caller sends no more than its window while nobody reads, and all of it when somebody does', async () => {
  const calls: ServerCall[] = [];
  const { port, sockets } = await serve((call) => void calls.push(call));
  const session = connect(port);
  const { stream, packets } = open(session);
  const sent = Array.from({ length: 64 }, (_, i) => data(1n, Buffer.alloc(4096, i)));
  stream.write(Buffer.concat(sent.map((packet) => message(packet))));
  await until('call', () => calls.length === 1);
  const other = open(session);
  await until('other call', () => calls.length === 2);
  calls[1]?.start(echo(calls[1]));
  other.stream.write(message({ type: 'DRAIN' }));
  await until('the other call is served', () => other.packets.length === 1);
  const [socket] = sockets;
  assert.ok((socket?.bytesRead ?? 0) < 2 * WINDOW, `${socket?.bytesRead} bytes came`);
  calls[0]?.start(echo(calls[0] as ServerCall));
  await until('all packets', () => packets.length === sent.length);
  assert.deepEqual(packets, sent);
});

test('a reader that takes a packet now and then lets no more come than it took', async () => {
  const calls: ServerCall[] = [];
  let taken = 0;
  const { port, sockets } = await serve((call) => {
    calls.push(call);
    const packet = (each: Packet) => {
      if (each.type === 'DATA') taken += each.data.length;
      call.pause();
    };
    call.start({ packet, drain() {}, close() {} });
  });
  const { stream } = open(connect(port));
  const piece = message(data(1n, Buffer.alloc(1000)));
  const write = () => {
    while (stream.write(piece)) {}
    stream.once('drain', write);
  };
  write();
  await until('a call', () => taken > 0);
  for (let round = 1; round <= 200; round++) {
    calls[0]?.resume();
    await until(`packet ${round}`, () => taken >= round * 1000);
    // What is given for it comes before the next.
    if (round % 20 === 0) await delay(5);
  }
  const came = [...sockets].reduce((sum, { bytesRead }) => sum + bytesRead, 0);
  assert.ok(came <= taken + 2 * WINDOW, `${came} bytes came, and ${taken} were taken`);
});

test('windows that change amid a stream are kept to', async () => {
  const size = 300_000;
  const started = deferred<ServerCall>();
  const { port } = await serve((call) => {
    call.start({ packet() {}, drain() {}, close() {} });
    started.resolve(call);
  });
  const session = connect(port);
  const { stream, packets } = open(session);
  stream.pause();
  const call = await started.promise;
  assert.equal(call.send(data(1n, Buffer.alloc(size, 1))), false);
  await once(stream, 'readable');
  for (const initialWindowSize of [1_000, 0, 20_000, 131_072]) {
    await new Promise<void>((resolve) => session.settings({ initialWindowSize }, () => resolve()));
  }
  stream.resume();
  await until('the packet', () => packets.length === 1);
  assert.equal(packets[0]?.type === 'DATA' && packets[0].data.length, size);
  call.end();
});

test('a call that fails while its caller does not read is reset, and its sink hears of it once', async () => {
  const closed: unknown[] = [];
  const { port } = await serve((call) => {
    call.start({ packet() {}, drain() {}, close: (error) => void closed.push(error) });
    call.send(data(1n, Buffer.alloc(1024 * 1024)));
    call.destroy(new Error('enough'));
  });
  const { stream } = open(connect(port));
  stream.pause();
  await once(stream, 'readable');
  stream.pause();
  await once(stream, 'aborted');
  assert.equal(stream.rstCode, http2.constants.NGHTTP2_CANCEL);
  assert.equal(closed.length, 1);
});

test('a server that drains lets its calls finish and sends new ones elsewhere', async () => {
  const { server, port } = await serve();
  const session = connect(port);
  const running = open(session);
  running.stream.write(message({ type: 'DRAIN' }));
  await until('an answer', () => running.packets.length === 1);
  const goaway = once(session, 'goaway') as Promise<[code: number, last: number]>;
  server.drain();
  assert.deepEqual((await goaway).slice(0, 2), [0, 1]);
  running.stream.write(message({ type: 'DRAIN' }));
  await until('another answer', () => running.packets.length === 2);
  const late = connect(port);
  assert.deepEqual(((await once(late, 'goaway')) as number[]).slice(0, 2), [0, 0]);
  running.stream.end();
  assert.equal((await running.status)['grpc-status'], '0');
  await until('all are gone', () => server.connections === 0);
});

test('a stream opened as the server began to drain ends nothing else', async () => {
  const { server, port } = await serve();
  const session = connect(port);
  const running = open(session);
  running.stream.write(message({ type: 'DRAIN' }));
  await until('an answer', () => running.packets.length === 1);
  server.drain();
  // Sent before this client has seen the GOAWAY.
  const late = open(session);
  late.stream.write(message({ type: 'DRAIN' }));
  late.stream.close(http2.constants.NGHTTP2_CANCEL);
  running.stream.write(message({ type: 'DRAIN' }));
  await until('another answer', () => running.packets.length === 2);
});

test('a server that closes waits for its calls, and cuts what is left', async () => {
  const closed: unknown[] = [];
  const { server, port } = await serve((call) => {
    call.start({ packet() {}, drain() {}, close: (error) => void closed.push(error) });
    call.respond([]);
  });
  const { stream, head } = open(connect(port));
  await head;
  await server.close(20);
  assert.equal(server.connections, 0);
  assert.equal(closed.length, 1);
  await until('the caller knows', () => stream.closed);
});

test('500 connections that end at once are all told of, and the next call is served', async () => {
  let ended = 0;
  const { server, port } = await serve((call) =>
    call.start({ packet: (packet) => void call.send(packet), drain() {}, close: () => void ended++ }),
  );
  const sessions = Array.from({ length: 500 }, () => connect(port));
  const replies = sessions.map((session) => open(session));
  for (const { stream } of replies) stream.write(message({ type: 'DRAIN' }));
  await until('500 calls', () => replies.every(({ packets }) => packets.length === 1));
  for (const session of sessions) session.destroy();
  const next = open(connect(port));
  next.stream.write(message({ type: 'DRAIN' }));
  await until('the next call', () => next.packets.length === 1);
  await until('500 ends', () => ended === 500 && server.connections === 1);
});

test('a peer that asks and does not read is cut off', async () => {
  const { server, port, events } = await serve();
  const refused = once(events, 'refused') as Promise<[string, string, Error]>;
  const socket = net.connect(port, '127.0.0.1').on('error', () => {});
  cleanups.push(() => socket.destroy());
  const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0', 'latin1');
  const pings = Buffer.concat(
    Array.from({ length: 4_096 }, () => Buffer.from('\0\0\x08\x06\0\0\0\0\0pingping', 'latin1')),
  );
  socket.pause().write(preface);
  const flood = () => {
    while (!socket.destroyed && socket.write(pings));
  };
  socket.on('drain', flood);
  flood();
  assert.match((await refused)[2].message, /asks for more than it reads/);
  await until('it is gone', () => server.connections === 0);
});
