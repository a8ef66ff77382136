import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Sending, type Sink } from './sending.ts';

const CHUNK = Buffer.alloc(64 * 1024);

/** A connection that takes one write a turn of the event loop. */
function slow(): Duplex {
  return new Duplex({ read() {}, write: (_chunk, _encoding, done) => setImmediate(done) });
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

test('of many streams that send bulk few have some at hand, and all get on alike', async () => {
  const overflow = () => assert.fail('no frame waits');
  const sending = new Sending(slow(), { maxFrame: CHUNK.length, window: 2 ** 31 - 1 }, overflow);
  const streams = Array.from({ length: 100 }, () => new Busy(sending));
  const deadline = performance.now() + 10_000;
  const least = () => Math.min(...streams.map(({ sent }) => sent));
  let most = 0;
  while (least() < 5) {
    assert.ok(performance.now() < deadline, `some stream has sent ${least()} chunks in 10 s`);
    await turn();
    if (least() > 0) most = Math.max(most, streams.filter(({ sendable }) => sendable).length);
  }
  assert.ok(most > 0 && most <= 16, `${most} had something`);
  assert.ok(Math.max(...streams.map(({ sent }) => sent)) <= 6);
});
