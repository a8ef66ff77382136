import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compact, Packing, Waiting } from './buffers.ts';
import { memory } from './resources.ts';

test('copies that are kept count as filled too', (context) => {
  const filled = context.mock.method(memory, 'filled');
  compact(Buffer.alloc(65_536).subarray(0, 4096));
  new Packing().begin(Buffer.alloc(100));
  assert.deepEqual(
    filled.mock.calls.map(({ arguments: [bytes] }) => bytes),
    [4096, 256],
  );
});

test('what waits comes in order, and a look where nothing waits makes nothing', { skip: 'Deno' in globalThis }, () => {
  const waiting = new Waiting();
  for (const text of ['a', 'b', 'c']) waiting.push(Buffer.from(text));
  assert.deepEqual(
    [waiting.length, String(waiting.shift()), waiting.shift(), waiting.length],
    [3, 'abc', undefined, 0],
  );
  const made = Array.from({ length: 9 }, () => {
    const before = process.memoryUsage().heapUsed;
    for (let n = 0; n < 5000; n++) waiting.shift();
    return process.memoryUsage().heapUsed - before;
  });
  // The compiler may begin in one of them, and a collection in another.
  const [usual = 0] = made.sort((a, b) => a - b).slice(4);
  assert.ok(usual < 50_000, `${made} bytes`);
});
