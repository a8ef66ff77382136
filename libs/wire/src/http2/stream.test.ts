import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Incoming } from './incoming.ts';
import type { Output, SendGroup } from './output.ts';
import { Http2Stream } from './stream.ts';

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
