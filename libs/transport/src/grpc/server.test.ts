import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { until } from '@isthmus/runtime/testing';
import { planeEvents } from '@isthmus/tunnel';
import { hpackEncode, type ServerCall } from '@isthmus/wire';
import { grpcServer } from './server.ts';
import { connect, data, message, open, type Reply, serve } from './testing/calls.ts';

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
    call.start({ packet() {}, drain() {}, close: (error) => void closed.push(error) });
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
    call.start({ packet: (packet) => void call.send(packet), drain() {}, close: () => void ended++ }),
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
  const strangers = { streamWindow: 4096, maxStreams: 1 };
  for (const admits of [true, false]) {
    const events = planeEvents();
    const refused: string[] = [];
    events.on('refused', (_where, _remote, { message }) => refused.push(message));
    const services = [
      { path: '/ProxyService/Proxy', serve: (_call: ServerCall, admit: () => void) => admits && admit() },
    ];
    const server = grpcServer({
      services,
      events,
      name: 'callers',
      keepaliveMs: 60_000,
      streamWindow: 65_536,
      strangers,
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
