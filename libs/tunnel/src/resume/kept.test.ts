import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Kept } from './kept.ts';

const text = (kept: Kept) => Buffer.concat([...kept.chunks()]).toString();

test('bytes are kept from the position where they were let go of, also inside a chunk', () => {
  const kept = new Kept();
  for (const chunk of ['abc', '', 'de', 'fgh']) kept.add(Buffer.from(chunk));
  assert.equal(text(kept), 'abcdefgh');
  kept.release(4);
  assert.deepEqual([text(kept), kept.from, kept.to, kept.bytes], ['efgh', 4, 8, 4]);
  kept.release(4);
  kept.release(5);
  assert.equal(text(kept), 'fgh');
  kept.add(Buffer.from('i'));
  kept.release(9);
  assert.deepEqual([text(kept), kept.from, kept.to], ['', 9, 9]);
});

test('what was let go of is not referred to any more, however many chunks came', () => {
  const kept = new Kept();
  for (let position = 0; position < 100_000; position += 10) {
    kept.add(Buffer.alloc(10));
    kept.release(Math.max(0, position - 100));
  }
  assert.deepEqual([[...kept.chunks()].length, kept.bytes], [11, 110]);
});
