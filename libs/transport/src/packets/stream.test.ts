import assert from 'node:assert/strict';
import { test } from 'node:test';
import { planeEvents, TUNNEL } from '@isthmus/tunnel';
import { PacketMux } from './mux.ts';
import { type ClosingEvent, type ClosingState, closingStep, type PacketRole } from './stream.ts';
import { channelPair } from './testing.ts';

type Row = [role: PacketRole, from: ClosingState, on: ClosingEvent, to: ClosingState, does: string];

const ROWS: Row[] = [
  ['agent', 'open', 'end', 'closed', 'tell eof'],
  ['agent', 'open', 'peer-close', 'closed', 'tell eof'],
  ['agent', 'open', 'abort', 'closed', 'tell eof'],
  ['agent', 'open', 'lost', 'closed', 'eof'],
  ['agent', 'closed', 'end', 'closed', ''],
  ['agent', 'closed', 'abort', 'closed', ''],
  ['hub', 'open', 'end', 'closing', 'tell'],
  ['hub', 'open', 'peer-close', 'closed', 'eof'],
  ['hub', 'open', 'abort', 'closed', 'tell eof'],
  ['hub', 'open', 'lost', 'closed', 'eof'],
  ['hub', 'closing', 'peer-close', 'closed', 'eof'],
  ['hub', 'closing', 'abort', 'closed', 'eof'],
  ['hub', 'closing', 'lost', 'closed', 'eof'],
  ['hub', 'closed', 'peer-close', 'closed', ''],
];

for (const [role, from, on, to, does] of ROWS) {
  test(`a tunnel of the ${role} that is ${from} goes ${to} on ${on}${does && ` and does ${does}`}`, () => {
    const { next, tell, eof } = closingStep(role, from, on);
    const done = [tell && 'tell', eof && 'eof'].filter(Boolean).join(' ');
    assert.deepEqual({ next, done }, { next: to, done: does });
  });
}

const READ = 64 * 1024;

function tunnel() {
  const [channel] = channelPair();
  return new PacketMux(channel, { role: 'hub', events: planeEvents(), receive() {}, closed() {} }).open(1n);
}

test('small pieces of large reads are kept without these, also before the reader has come', async () => {
  const stream = tunnel();
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

test("of a peer's reason of megabytes only the beginning is told", async () => {
  for (const text of ['x', 'ended by the plane: ']) {
    const stream = tunnel();
    const failed = new Promise<Error>((resolve) => stream.once('error', resolve));
    stream.receiveClose(text.padEnd(4_000_000, 'x'));
    const { message } = await failed;
    assert.ok(message.length < TUNNEL.errorTextChars + 100, `${message.length} characters`);
  }
});

test('a peer that closes with an error does so after its data, which may still wait for the reader', async () => {
  const stream = tunnel();
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
