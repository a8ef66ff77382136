import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SharedBudget } from '@isthmus/runtime';
import { ErrorCode } from './frames.ts';
import { encodeHead } from './heads.ts';
import type { Incoming } from './incoming.ts';
import type { Output, SendGroup } from './output.ts';
import { Http2Stream } from './stream.ts';
import { HEAD, streamsOf } from './testing.ts';

/** A stream with a wide window, whose output keeps what is added, without frames' heads. */
function opened(): { stream: Http2Stream; output: Output; sent: () => Buffer } {
  const parts: Buffer[] = [];
  const output = { head() {}, offer() {}, add: (part: Buffer) => void parts.push(part) } as unknown as Output;
  const owner = { output, abandonsRequests: false, excess: 0, streamBroken() {}, streamClosed() {} };
  const limits = { incoming: {} as Incoming, sendWindow: 1_000_000, group: {} as SendGroup };
  return { stream: new Http2Stream(1, owner, limits), output, sent: () => Buffer.concat(parts) };
}

test('bytes leave in order, however they were written and are sent', () => {
  const { stream, output, sent } = opened();
  const bytes = Buffer.from(Array.from({ length: 10_000 }, (_, i) => i % 251));
  let written = 0;
  let seed = 1;
  const next = (most: number) => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % most;
  };
  while (written < bytes.length || stream.pending > 0) {
    const length = Math.min(next(40), bytes.length - written);
    if (length > 0) stream.write(bytes.subarray(written, written + length));
    written += length;
    if (next(3) === 0 || written === bytes.length) stream.sendFrame(output, 1 + next(300));
  }
  assert.ok(sent().equals(bytes));
});

test('a queue of many short pieces is not moved up for each piece that leaves', (context) => {
  let shifts = 0;
  const { shift } = Array.prototype;
  Reflect.set(Array.prototype, 'shift', function (this: unknown[]) {
    shifts++;
    return shift.call(this);
  });
  context.after(() => Reflect.set(Array.prototype, 'shift', shift));
  const { stream, output, sent } = opened();
  for (let i = 0; i < 20_000; i++) stream.write(Buffer.of(i % 251));
  while (stream.pending > 0) stream.sendFrame(output, 100);
  assert.equal(shifts, 0);
  assert.equal(sent().length, 20_000);
});

const KIB = 1024;

test('a stream that is closed borrows nothing for a window that nobody uses', () => {
  const local = new SharedBudget(256 * KIB);
  const growth = { budget: new SharedBudget(256 * KIB), local, largest: 1024 * KIB, excess: new SharedBudget(0) };
  const { open } = streamsOf('server', { windowBytes: 64 * KIB, rules: { growth } });
  const stream = open(1);
  stream.receiveData(Buffer.alloc(60 * KIB), 0, false);
  stream.reset(ErrorCode.CANCEL);
  stream.consume(60 * KIB);
  assert.equal(local.left, 256 * KIB);
});

/** Streams with a window of 16 KiB, and what has come beyond their windows and was not read, in KiB. */
function excessOf(role: 'client' | 'server') {
  const [budget, local, excess] = [new SharedBudget(0), new SharedBudget(0), new SharedBudget(128 * KIB, true)];
  const growth = { budget, local, largest: 64 * KIB, excess };
  return {
    ...streamsOf(role, { windowBytes: 16 * KIB, rules: { growth } }),
    held: () => 128 - excess.left / KIB,
  };
}

test('what came early on a stream that has ended gives its budget back as it is read', async () => {
  for (const closes of [false, true]) {
    const { open, held, sent } = excessOf('server');
    const stream = open(1);
    stream.receiveData(Buffer.alloc(40 * KIB), 0, true);
    assert.equal(held(), 24);
    await sent();
    if (closes) stream.end();
    assert.equal(stream.consume(20 * KIB), false);
    assert.equal(held(), 4);
    assert.equal(stream.consume(20 * KIB), false);
    assert.deepEqual([held(), stream.closed], [0, closes]);
    assert.equal((await sent()).length, closes ? 1 : 0, 'the other side is told nothing');
  }
});

test('what came early on a stream that nobody serves gives its budget back once the stream is closed', () => {
  const closings = [
    (stream: Http2Stream) => stream.reset(ErrorCode.CANCEL),
    (stream: Http2Stream) => stream.receiveReset(ErrorCode.CANCEL),
    (stream: Http2Stream) => stream.lose(new Error('the link was lost')),
    (stream: Http2Stream) => {
      stream.end();
      stream.receiveData(Buffer.alloc(0), 0, true);
    },
  ];
  for (const close of closings) {
    const { streams, held } = excessOf('client');
    const stream = streams.request(encodeHead(HEAD));
    stream.receiveSection([[':status', '200']], false);
    stream.receiveData(Buffer.alloc(40 * KIB), 0, false);
    assert.equal(held(), 24);
    close(stream);
    assert.deepEqual([held(), stream.closed], [0, true]);
  }
});
