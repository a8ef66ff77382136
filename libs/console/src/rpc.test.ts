import assert from 'node:assert/strict';
import { test } from 'node:test';
import { linesOf } from './rpc.ts';

function streamOf(...chunks: readonly string[]): ReadableStream<Uint8Array> {
  const bytes = chunks.map((chunk) => new TextEncoder().encode(chunk));
  return new ReadableStream({
    pull(controller) {
      const next = bytes.shift();
      if (next) controller.enqueue(next);
      else controller.close();
    },
  });
}

async function read(stream: ReadableStream<Uint8Array>): Promise<string[]> {
  const lines: string[] = [];
  for await (const line of linesOf(stream)) lines.push(line);
  return lines;
}

test('lines are read however they are cut, and empty ones are none', async () => {
  assert.deepEqual(await read(streamOf('{"a"', ':1}\n\n{"b":2}\n{"c"', ':3}')), ['{"a":1}', '{"b":2}', '{"c":3}']);
});

test('a character of several bytes may be cut', async () => {
  const bytes = new TextEncoder().encode('→\n');
  const cut = [bytes.subarray(0, 1), bytes.subarray(1)];
  const stream = new ReadableStream<Uint8Array>({
    pull(controller) {
      const next = cut.shift();
      if (next) controller.enqueue(next);
      else controller.close();
    },
  });
  assert.deepEqual(await read(stream), ['→']);
});

test('a line without an end is refused', async () => {
  const endless = Array.from({ length: 66 }, () => 'x'.repeat(1024 * 1024));
  await assert.rejects(read(streamOf(...endless)), /longer than 67108864 characters/);
});
