import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PacketOutbox } from './mux.ts';
import { type ClosingEvent, type ClosingState, closingStep, type PacketSide, PacketStream } from './stream.ts';
import { channelPair } from './testing.ts';

type Row = [side: PacketSide, from: ClosingState, on: ClosingEvent, to: ClosingState, does: string];

const ROWS: Row[] = [
  ['serving', 'open', 'end', 'closed', 'tell eof'],
  ['serving', 'open', 'peer-close', 'closed', 'tell eof'],
  ['serving', 'open', 'abort', 'closed', 'tell eof'],
  ['serving', 'open', 'lost', 'closed', 'eof'],
  ['serving', 'closed', 'end', 'closed', ''],
  ['serving', 'closed', 'abort', 'closed', ''],
  ['dialling', 'open', 'end', 'closing', 'tell'],
  ['dialling', 'open', 'peer-close', 'closed', 'eof'],
  ['dialling', 'open', 'abort', 'closed', 'tell eof'],
  ['dialling', 'open', 'lost', 'closed', 'eof'],
  ['dialling', 'closing', 'peer-close', 'closed', 'eof'],
  ['dialling', 'closing', 'abort', 'closed', 'eof'],
  ['dialling', 'closing', 'lost', 'closed', 'eof'],
  ['dialling', 'closed', 'peer-close', 'closed', ''],
];

for (const [side, from, on, to, does] of ROWS) {
  test(`a ${side} tunnel that is ${from} goes ${to} on ${on}${does && ` and does ${does}`}`, () => {
    const { next, tell, eof } = closingStep(side, from, on);
    const done = [tell && 'tell', eof && 'eof'].filter(Boolean).join(' ');
    assert.deepEqual({ next, done }, { next: to, done: does });
  });
}

const READ = 64 * 1024;

test('small pieces of large reads are kept without these, also before the reader has come', async () => {
  const [channel] = channelPair();
  const unread = { put() {}, take() {}, close() {} };
  const stream = new PacketStream({ side: 'dialling', connectID: 1n, outbox: new PacketOutbox(channel), unread });
  const sent: Buffer[] = [];
  for (let n = 0; n < 200; n++) {
    const read = Buffer.allocUnsafeSlow(READ).fill(n);
    sent.push(Buffer.from(read.subarray(0, 100)));
    stream.receive(read.subarray(0, 100));
  }
  const kept: Buffer[] = [];
  stream.on('data', (piece: Buffer) => kept.push(piece));
  await new Promise((resolve) => setImmediate(resolve));
  assert.ok(Buffer.concat(kept).equals(Buffer.concat(sent)));
  const memory = [...new Set(kept.map(({ buffer }) => buffer))].reduce((sum, { byteLength }) => sum + byteLength, 0);
  // The runtime makes small buffers from pools, of 8 KiB to 64 KiB; all reads together have 12.5 MiB.
  assert.ok(memory <= 4 * READ, `${memory} bytes are kept for ${Buffer.concat(sent).length}`);
  // One that is read at once is not copied.
  const read = Buffer.allocUnsafeSlow(READ);
  stream.receive(read.subarray(0, 100));
  assert.equal(kept.at(-1)?.buffer, read.buffer);
  stream.destroy();
});

test('a peer that closes with an error does so after its data, which may still wait for the reader', async () => {
  const [channel] = channelPair();
  const unread = { put() {}, take() {}, close() {} };
  const stream = new PacketStream({ side: 'dialling', connectID: 1n, outbox: new PacketOutbox(channel), unread });
  const pieces = 4;
  for (let piece = 0; piece < pieces; piece++) stream.receive(Buffer.alloc(READ));
  stream.receiveClose('read tcp: connection reset by peer');
  let read = 0;
  stream.on('data', (bytes: Buffer) => {
    read += bytes.length;
    stream.pause();
    setImmediate(() => stream.resume());
  });
  const failure = await new Promise<Error | undefined>((resolve) => {
    stream.once('error', resolve).once('end', () => resolve(undefined));
  });
  assert.equal(failure?.message, 'the peer closed the tunnel: read tcp: connection reset by peer');
  assert.equal(read, pieces * READ);
});
