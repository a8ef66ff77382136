import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LineQueue } from './line-queue.ts';

/** A queue of lines of three bytes. */
function queueOf(count: number, pieceBytes = 6): LineQueue {
  const queue = new LineQueue(100, pieceBytes);
  for (let n = 0; n < count; n++) assert.ok(queue.push(`${n}.\n`));
  return queue;
}

const next = (queue: LineQueue) => `${Buffer.from(queue.next())}`;

test('lines are written in pieces of whole lines, and one that is longer than a piece at once', () => {
  const queue = queueOf(3);
  queue.push('a longer line\n');
  const pieces: string[] = [];
  for (let piece = next(queue); piece !== ''; piece = next(queue)) {
    pieces.push(piece);
    queue.wrote(piece.length);
  }
  assert.deepEqual([pieces, queue.bytes], [['0.\n1.\n', '2.\n', 'a longer line\n'], 0]);
});

test('a line that finds no room is refused, until some are written', () => {
  const queue = new LineQueue(6, 6);
  assert.deepEqual(
    ['0.\n', '1.\n', '2.\n'].map((line) => queue.push(line)),
    [true, true, false],
  );
  queue.next();
  queue.wrote(3);
  assert.deepEqual([queue.bytes, queue.push('2.\n'), queue.push('3.\n')], [3, true, false]);
});

for (const [written, rest] of [
  [0, '0.\n1.\n'],
  [2, '0.\n1.\n'],
  [3, '1.\n'],
  [4, '1.\n'],
] as const) {
  test(`after ${written} bytes, a line that was written in part is repeated whole`, () => {
    const queue = queueOf(2);
    queue.next();
    queue.wrote(written);
    queue.repeatLine();
    assert.deepEqual([next(queue), queue.bytes], [rest, rest.length]);
  });
}

test('what is forgotten is counted by lines, one that was written in part among them', () => {
  const queue = queueOf(3);
  queue.next();
  queue.wrote(4);
  assert.deepEqual([queue.clear(), queue.bytes, next(queue)], [2, 0, '']);
  assert.ok(queue.push('3.\n'));
  assert.equal(next(queue), '3.\n');
});
