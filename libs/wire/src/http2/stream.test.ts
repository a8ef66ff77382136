import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SendQueue } from './stream.ts';

/** An output that keeps what is added. */
function kept(): { output: Parameters<SendQueue['send']>[0]; sent: () => Buffer } {
  const parts: Buffer[] = [];
  const output = { add: (part: Buffer) => void parts.push(part) } as unknown as Parameters<SendQueue['send']>[0];
  return { output, sent: () => Buffer.concat(parts) };
}

test('bytes leave in order, however they were written and are sent', () => {
  const { output, sent } = kept();
  const queue = new SendQueue();
  const bytes = Buffer.from(Array.from({ length: 10_000 }, (_, i) => i % 251));
  let written = 0;
  let seed = 1;
  const next = (most: number) => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % most;
  };
  while (written < bytes.length || queue.length > 0) {
    const length = Math.min(next(40), bytes.length - written);
    if (length > 0) queue.push(bytes.subarray(written, written + length));
    written += length;
    if (next(3) === 0 || written === bytes.length) queue.send(output, Math.min(queue.length, 1 + next(300)));
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
  const queue = new SendQueue();
  for (let i = 0; i < 20_000; i++) queue.push(Buffer.of(i % 251));
  const { output, sent } = kept();
  while (queue.length > 0) queue.send(output, Math.min(queue.length, 100));
  assert.equal(shifts, 0);
  assert.equal(sent().length, 20_000);
});
