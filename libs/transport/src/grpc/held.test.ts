import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { encodePacket, type Packet } from '@isthmus/proto';
import { until } from '@isthmus/runtime/testing';
import type { ServerCall } from '@isthmus/wire';
import { connect, data, message, open, serve, WINDOW } from './testing/calls.ts';

/** As long as a message may be. */
const LONG = 4 * 1024 * 1024;

/** Takes packets and counts the bytes of their data. */
function taking(call: ServerCall, took: Packet[]): void {
  call.start({ packet: (packet) => void took.push(packet), drain() {}, close() {} });
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
