import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { FRAME_HEAD } from './frames.ts';
import { Sending, type Sink } from './sending.ts';

const CHUNK = Buffer.alloc(64 * 1024);

/** A connection that takes one write a turn of the event loop. */
function slow(): Duplex {
  return new Duplex({ read() {}, write: (_chunk, _encoding, done) => setImmediate(done) });
}

/** Waits, turn by turn, until it holds. */
async function eventually(holds: () => boolean): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!holds()) {
    assert.ok(performance.now() < deadline, 'not within a minute');
    await turn();
  }
}

/** Always has more to send, once it is asked for it. */
class Busy {
  offered = false;
  sendable = true;
  sent = 0;
  readonly #sending: Sending;

  constructor(sending: Sending) {
    this.#sending = sending;
    sending.offer(this);
  }

  sendFrame(sink: Sink): number {
    sink.write(CHUNK);
    this.sendable = false;
    this.sent++;
    this.#sending.emptied(this);
    return CHUNK.length;
  }

  refill(): void {
    this.sendable = true;
    this.#sending.offer(this);
  }
}

/** Has so many bytes to send. */
class Finite {
  offered = false;
  left: number;

  constructor(bytes: number, sending: Sending) {
    this.left = bytes;
    sending.offer(this);
  }

  get sendable(): boolean {
    return this.left > 0;
  }

  sendFrame(sink: Sink, limit: number): number {
    const length = Math.min(limit, this.left);
    sink.write(Buffer.alloc(FRAME_HEAD));
    sink.write(Buffer.alloc(length));
    this.left -= length;
    return length;
  }

  refill(): void {}
}

for (const highWaterMark of [16 * 1024, 1024 * 1024]) {
  test(`a write is no longer than one segment, to a socket that takes ${highWaterMark / 1024} KiB`, async () => {
    const writes: number[] = [];
    const socket = new Duplex({
      highWaterMark,
      read() {},
      writev(chunks, done) {
        writes.push(chunks.reduce((sum, { chunk }) => sum + chunk.length, 0));
        setImmediate(done);
      },
    });
    const overflow = () => assert.fail('no frame waits');
    const sending = new Sending(socket, { maxFrame: CHUNK.length, window: 2 ** 31 - 1 }, overflow);
    const streams = [300_000, 100, 40_000, 200_000].map((bytes) => new Finite(bytes, sending));
    await eventually(() => streams.every(({ left }) => left === 0) && socket.writableLength === 0);
    assert.ok(Math.max(...writes) <= 65_300, `${writes}`);
    assert.ok(writes.length <= 10, `${writes}`);
  });
}

test('of many streams that send bulk few have some at hand, and all get on alike', async () => {
  const overflow = () => assert.fail('no frame waits');
  const sending = new Sending(slow(), { maxFrame: CHUNK.length, window: 2 ** 31 - 1 }, overflow);
  const streams = Array.from({ length: 100 }, () => new Busy(sending));
  const least = () => Math.min(...streams.map(({ sent }) => sent));
  let most = 0;
  await eventually(() => {
    if (least() > 0) most = Math.max(most, streams.filter(({ sendable }) => sendable).length);
    return least() >= 5;
  });
  assert.ok(most > 0 && most <= 16, `${most} had something`);
  assert.ok(Math.max(...streams.map(({ sent }) => sent)) <= 6);
});

test('streams that wait for more are asked for it when the connection’s window opens', async () => {
  const overflow = () => assert.fail('no frame waits');
  const sending = new Sending(slow(), { maxFrame: CHUNK.length, window: 10 * CHUNK.length }, overflow);
  const streams = Array.from({ length: 20 }, () => new Busy(sending));
  const sent = () => streams.reduce((sum, stream) => sum + stream.sent, 0);
  await eventually(() => sending.window <= 0);
  const before = sent();
  sending.allow(40 * CHUNK.length);
  await eventually(() => sent() >= before + 40);
});
