import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Packet } from '@isthmus/proto';
import { deferred } from '@isthmus/runtime';
import { until } from '@isthmus/runtime/testing';
import type { ServerCall } from '@isthmus/wire';
import { cleanups } from '../testing/cleanups.ts';
import { connect, data, echo, message, open, serve, WINDOW } from './testing/calls.ts';

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
    call.start({ packet, drain() {}, close() {} });
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
  const { server, port, events } = await serve();
  const refused = once(events, 'refused') as Promise<[string, string, Error]>;
  const socket = net.connect(port, '127.0.0.1').on('error', () => {});
  cleanups.push(() => socket.destroy());
  const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0', 'latin1');
  // POST / of no content type, by three indices, with its end: each is answered with more than it takes.
  const request = Buffer.from('\0\0\x03\x01\x05\0\0\0\0\x83\x86\x84', 'latin1');
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
  assert.match((await refused)[2].message, /sends requests faster than it reads answers/);
  await until(() => server.connections === 0, 'it is gone');
});

test('a stranger sends 64 KiB on one stream, and what its window allows once it is admitted', async () => {
  const calls: ServerCall[] = [];
  let admit = () => {};
  const wide = 1024 * 1024;
  const { port, sockets } = await serve(
    (call, admitted) => {
      calls.push(call);
      admit = admitted;
    },
    { streamWindow: wide, maxStreams: 4, strangers: { streamWindow: WINDOW, maxStreams: 1 } },
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
  admit();
  await until(() => came() >= wide, 'a wider window is full');
  for (let i = 0; i < 10; i++) await new Promise((resolve) => session.ping(resolve));
  assert.ok(came() < wide + 4096, `${came()} bytes came while nobody read`);
  assert.deepEqual([session.remoteSettings.initialWindowSize, session.remoteSettings.maxConcurrentStreams], [wide, 4]);
  const others = [open(session), open(session), open(session)];
  for (const { stream } of others) stream.write(message({ type: 'DRAIN' }));
  await until(() => calls.length === 4, 'three more streams');
});
