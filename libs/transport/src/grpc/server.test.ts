import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import net, { type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { setTimeout as delay, setImmediate } from 'node:timers/promises';
import { encodePacket, type Packet } from '@isthmus/proto';
import { changed, until } from '@isthmus/runtime/testing';
import { planeEvents } from '@isthmus/tunnel';
import { hpackEncode, type ServerCall, StatusError, WIRE } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { cleanups } from '../testing/cleanups.ts';
import { agentService } from './agents.ts';
import { GrpcServer } from './server.ts';
import { connect, data, echo, HEAD, message, open, type Reply, serve, WINDOW } from './testing/calls.ts';

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

test('a server that drains lets its calls finish and sends new ones elsewhere', async () => {
  const { server, port } = await serve();
  const session = connect(port);
  const running = open(session);
  running.stream.write(message({ type: 'DRAIN' }));
  await until(() => running.packets.length === 1, 'an answer');
  const goaway = once(session, 'goaway') as Promise<[code: number, last: number]>;
  server.drain();
  assert.deepEqual((await goaway).slice(0, 2), [0, 1]);
  running.stream.write(message({ type: 'DRAIN' }));
  await until(() => running.packets.length === 2, 'another answer');
  const late = connect(port);
  assert.deepEqual(((await once(late, 'goaway')) as number[]).slice(0, 2), [0, 0]);
  running.stream.end();
  assert.equal((await running.status)['grpc-status'], '0');
  await until(() => server.connections === 0, 'all are gone');
});

test('a stream opened as the server began to drain ends nothing else', async () => {
  const { server, port } = await serve();
  const session = connect(port);
  const running = open(session);
  running.stream.write(message({ type: 'DRAIN' }));
  await until(() => running.packets.length === 1, 'an answer');
  server.drain();
  // Sent before this client has seen the GOAWAY.
  const late = open(session);
  late.stream.write(message({ type: 'DRAIN' }));
  late.stream.close(http2.constants.NGHTTP2_CANCEL);
  running.stream.write(message({ type: 'DRAIN' }));
  await until(() => running.packets.length === 2, 'another answer');
});

test('a server that closes waits for its calls, and cuts what is left', async () => {
  const closed: unknown[] = [];
  const { server, port } = await serve((call) => {
    call.start({ packet() {}, drain() {}, closed: (error) => void closed.push(error) });
    call.respond([]);
  });
  const { stream, head } = open(connect(port));
  await head;
  await server.close(20);
  assert.equal(server.connections, 0);
  assert.equal(closed.length, 1);
  await until(() => stream.closed, 'the caller knows');
});

test('500 connections that end at once are all told of, and the next call is served', async () => {
  let ended = 0;
  const { server, port } = await serve((call) =>
    call.start({ packet: (packet) => void call.send(packet), drain() {}, closed: () => void ended++ }),
  );
  const sessions = Array.from({ length: 500 }, () => connect(port));
  const replies = sessions.map((session) => open(session));
  for (const { stream } of replies) stream.write(message({ type: 'DRAIN' }));
  await until(() => replies.every(({ packets }) => packets.length === 1), '500 calls');
  for (const session of sessions) session.destroy();
  const next = open(connect(port));
  next.stream.write(message({ type: 'DRAIN' }));
  await until(() => next.packets.length === 1, 'the next call');
  await until(() => ended === 500 && server.connections === 1, '500 ends');
});

test('a stranger that asks and reads no answers is left after a few of them, and an admitted peer after many', async () => {
  const ping = Buffer.from(`000008060000000000${'00'.repeat(8)}`, 'hex');
  const settings = Buffer.from('000000040000000000', 'hex');
  const block = hpackEncode([
    [':method', 'POST'],
    [':scheme', 'http'],
    [':path', '/ProxyService/Proxy'],
    ['content-type', 'application/grpc'],
  ]);
  const head = Buffer.concat([Buffer.from([0, 0, block.length, 1, 4, 0, 0, 0, 1]), block]);
  const first = Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), settings]);
  const unproven = { streamWindow: 4096, maxStreams: 1 };
  for (const admits of [true, false]) {
    const events = planeEvents();
    const refused: string[] = [];
    events.on('refused', (_where, _remote, { message }) => refused.push(message));
    const serve = (_call: ServerCall, admit: (tenant: string) => void) => admits && admit('a');
    const service = { path: '/ProxyService/Proxy', serve };
    const server = new GrpcServer({
      service,
      events,
      name: 'callers',
      keepaliveMs: 60_000,
      streamWindow: 65_536,
      unproven,
    });
    const socket = new Duplex({ read() {}, write() {} });
    server.accept(socket as Socket, first);
    socket.push(head);
    for (let count = 0; count < 20 && !socket.destroyed; count++) {
      socket.push(Buffer.concat(Array.from({ length: 100 }, () => ping)));
      await setImmediate();
    }
    assert.deepEqual(refused, admits ? [] : ['the other side sends requests faster than it reads answers']);
    socket.destroy();
  }
});

test('a caller sends no more than its window while nobody reads, and all of it when somebody does', async () => {
  const calls: ServerCall[] = [];
  const { port, sockets } = await serve((call) => void calls.push(call));
  const session = connect(port);
  const { stream, packets } = open(session);
  const sent = Array.from({ length: 64 }, (_, i) => data(1n, Buffer.alloc(4096, i)));
  stream.write(Buffer.concat(sent.map((packet) => message(packet))));
  await until(() => calls.length === 1, 'call');
  const other = open(session);
  await until(() => calls.length === 2, 'other call');
  calls[1]?.start(echo(calls[1]));
  other.stream.write(message({ type: 'DRAIN' }));
  await until(() => other.packets.length === 1, 'the other call is served');
  const [socket] = sockets;
  assert.ok((socket?.bytesRead ?? 0) < 2 * WINDOW, `${socket?.bytesRead} bytes came`);
  calls[0]?.start(echo(calls[0] as ServerCall));
  await until(() => packets.length === sent.length, 'all packets');
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
    call.start({ packet, drain() {}, closed() {} });
  });
  const { stream } = open(connect(port));
  const piece = message(data(1n, Buffer.alloc(1000)));
  const write = () => {
    while (stream.write(piece)) {}
    stream.once('drain', write);
  };
  write();
  await until(() => taken > 0, 'a call');
  for (let round = 1; round <= 200; round++) {
    calls[0]?.resume();
    await until(() => taken >= round * 1000, `packet ${round}`);
    // What is given for it comes before the next.
    if (round % 20 === 0) await delay(5);
  }
  const came = [...sockets].reduce((sum, { bytesRead }) => sum + bytesRead, 0);
  // A window is doubled once half of it was read, so that it is no more than four times what was.
  assert.ok(came <= 5 * taken, `${came} bytes came, and ${taken} were taken`);
});

test('windows that change amid a stream are kept to', async () => {
  const size = 300_000;
  const started = Promise.withResolvers<ServerCall>();
  const { port } = await serve((call) => {
    call.start({ packet() {}, drain() {}, closed() {} });
    started.resolve(call);
  });
  const session = connect(port);
  const { stream, packets } = open(session);
  stream.pause();
  const call = await started.promise;
  assert.equal(call.send(data(1n, Buffer.alloc(size, 1))), false);
  await once(stream, 'readable');
  for (const initialWindowSize of [1_000, 0, 20_000, 131_072]) {
    const acknowledged = new Promise<void>((resolve) => session.settings({ initialWindowSize }, () => resolve()));
    // Deno 2.9 sends SETTINGS, and reads their ACK, only with other frames.
    session.ping(() => {});
    await acknowledged;
  }
  stream.resume();
  await until(() => packets.length === 1, 'the packet');
  assert.equal(packets[0]?.type === 'DATA' && packets[0].data.length, size);
  call.end();
});

test('a peer that asks and does not read is cut off', async () => {
  const why = 'x'.repeat(200);
  const { server, port, events } = await serve((call) => call.fail(new StatusError('Unavailable', why)));
  const refused = once(events, 'refused') as Promise<[string, string, Error]>;
  const socket = net.connect(port, '127.0.0.1').on('error', () => {});
  cleanups.push(() => socket.destroy());
  const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0', 'latin1');
  // With its end: each is answered with more than it takes.
  const fields = hpackEncode(Object.entries(HEAD));
  const request = Buffer.concat([Buffer.of(0, 0, fields.length, 1, 5, 0, 0, 0, 0), fields]);
  let id = 1;
  const requests = () =>
    Buffer.concat(
      Array.from({ length: 4_096 }, () => {
        const frame = Buffer.from(request);
        frame.writeUInt32BE(id, 5);
        id += 2;
        return frame;
      }),
    );
  socket.pause().write(preface);
  const flood = () => {
    while (!socket.destroyed && socket.write(requests()));
  };
  socket.on('drain', flood);
  flood();
  assert.match((await refused)[2].message, /more than 300 streams were reset in a row/);
  await until(() => server.connections === 0, 'it is gone');
});

test('a stranger sends 64 KiB on one stream, and what its window allows once it is admitted', async () => {
  using _ = changed(WIRE, { pongMs: 1 });
  const calls: ServerCall[] = [];
  let admit = (_tenant: string) => {};
  const wide = 1024 * 1024;
  const { port, sockets } = await serve(
    (call, admitted) => {
      calls.push(call);
      admit = admitted;
    },
    { streamWindow: wide, maxStreams: 4, unproven: { streamWindow: WINDOW, maxStreams: 1 } },
  );
  const session = connect(port);
  await once(session, 'remoteSettings');
  const { initialWindowSize, maxConcurrentStreams } = session.remoteSettings;
  assert.deepEqual([initialWindowSize, maxConcurrentStreams], [WINDOW, 1]);
  const first = open(session);
  first.stream.write(Buffer.alloc(4 * wide));
  const [socket] = sockets;
  const came = () => socket?.bytesRead ?? 0;
  await until(() => came() >= WINDOW, 'its window is full');
  for (let i = 0; i < 10; i++) await new Promise((resolve) => session.ping(resolve));
  assert.ok(came() < WINDOW + 4096, `${came()} bytes came of a stranger`);
  admit('a');
  await until(() => came() >= wide, 'a wider window is full');
  for (let i = 0; i < 10; i++) await new Promise((resolve) => session.ping(resolve));
  assert.ok(came() < wide + 4096, `${came()} bytes came while nobody read`);
  assert.deepEqual([session.remoteSettings.initialWindowSize, session.remoteSettings.maxConcurrentStreams], [wide, 4]);
  const others = [open(session), open(session), open(session)];
  for (const { stream } of others) stream.write(message({ type: 'DRAIN' }));
  await until(() => calls.length === 4, 'three more streams');
});

/** As long as a message may be. */
const LONG = 4 * 1024 * 1024;

/** Takes packets and counts the bytes of their data. */
function taking(call: ServerCall, took: Packet[]): void {
  call.start({ packet: (packet) => void took.push(packet), drain() {}, closed() {} });
}

function bytesOf(packets: readonly Packet[]): number {
  return packets.reduce((sum, packet) => sum + (packet.type === 'DATA' ? packet.data.length : 0), 0);
}

test('data of a message that never ends is passed on as it comes, and none of it is held', async () => {
  const took: Packet[] = [];
  const { port, sockets } = await serve((call) => taking(call, took));
  const session = connect(port);
  const whole = message(data(7n, Buffer.alloc(LONG, 'x')));
  const sent = 1024 * 1024;
  const calls = Array.from({ length: 8 }, () => open(session));
  for (const { stream } of calls) stream.write(whole.subarray(0, sent));
  await until(() => {
    const [socket] = sockets;
    return socket !== undefined && socket.bytesRead >= calls.length * sent;
  }, 'all that was sent has come');
  await until(() => bytesOf(took) > calls.length * (sent - WINDOW), 'the last was read');
  const held = calls.length * sent - bytesOf(took);
  assert.ok(held <= calls.length * 8 * 1024, `${held} bytes of ${calls.length} unfinished messages are held`);
  assert.ok(took.every((packet) => packet.type === 'DATA' && packet.connectID === 7n));
});

test('data of a long message comes whole and in order, however it is split', async () => {
  const took: Packet[] = [];
  const { port } = await serve((call) => taking(call, took));
  const bytes = Buffer.alloc(LONG);
  for (let at = 0; at < LONG; at += 4) bytes.writeUInt32BE(at, at);
  const { stream } = open(connect(port));
  const sent = Buffer.concat([message(data(1n, bytes)), message(data(2n, Buffer.from('next')))]);
  for (let at = 0, size = 1; at < sent.length; at += size, size = (size * 7) % 65_521) {
    if (!stream.write(sent.subarray(at, at + size))) await once(stream, 'drain');
  }
  await until(() => took.some((packet) => packet.type === 'DATA' && packet.connectID === 2n), 'the message behind it');
  const long = took.slice(0, -1).map((packet) => (packet.type === 'DATA' ? packet.data : Buffer.alloc(0)));
  assert.ok(Buffer.concat(long).equals(bytes));
});

test('a message that is no data is refused before it has come if it is longer than one that is kept whole', async () => {
  const took: Packet[] = [];
  const { port } = await serve((call) => taking(call, took));
  const session = connect(port);
  for (const length of [16 * 1024, LONG]) {
    const { stream, status } = open(session);
    const text: Packet = { type: 'DIAL_REQ', protocol: 'tcp', address: 'x'.repeat(length), random: 1n };
    stream.write(message(text).subarray(0, 1_000));
    const fields = await status;
    assert.equal(fields['grpc-status'], '8');
    assert.match(decodeURIComponent(String(fields['grpc-message'])), /bytes that is not DATA/);
    assert.ok(encodePacket(text).length > length);
  }
  const { stream } = open(session);
  stream.write(message({ type: 'DIAL_REQ', protocol: 'tcp', address: 'x'.repeat(16_000), random: 1n }));
  await until(() => took.length === 1, 'one that is short enough');
});

test('requests that nobody serves are counted: after a few the connection takes no more', async () => {
  const agents = agentService({
    serverId: 's',
    serverCount: () => 1,
    events: planeEvents(),
    admit: () => assert.fail('an agent without an id is judged'),
    checkRoom() {},
    onAgent() {},
  });
  const { port } = await serve(agents.serve);
  const unserved = {
    'an agent without an id': HEAD,
    'an unknown path': { ':path': '/a.B/Other', 'content-type': 'application/grpc' },
    'no gRPC': { ':path': '/a.B/C', 'content-type': 'text/plain' },
  };
  for (const [name, fields] of Object.entries(unserved)) {
    const session = connect(port).on('error', () => {});
    const left = once(session, 'goaway');
    let answered = 0;
    for (let n = 0; n < 100; n++) {
      const stream = session.request({ ':method': 'POST', te: 'trailers', ...fields }).on('error', () => {});
      stream.on('response', () => void answered++).resume();
    }
    await left;
    await once(session, 'close');
    assert.equal(answered, TRANSPORT.challenges, name);
  }
});
