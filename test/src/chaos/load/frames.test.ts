import assert from 'node:assert/strict';
import test from 'node:test';
import { FRAME_BYTES, FrameReader, frame } from './frames.ts';

function stream(count: number, last = false): Buffer {
  return Buffer.concat(Array.from({ length: count }, (_, n) => frame(7, 'up', n, last && n === count - 1)));
}

test('frames are recognised whatever the size of the chunks', () => {
  for (const size of [7, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 100_000]) {
    const reader = new FrameReader(7, 'up');
    const bytes = stream(5, true);
    for (let at = 0; at < bytes.length; at += size) {
      assert.equal(reader.take(bytes.subarray(at, at + size)), undefined, `chunks of ${size}`);
    }
    assert.equal(reader.frames, 5);
    assert.ok(reader.finished);
  }
});

test('one wrong, lost, repeated, foreign or surplus byte is detected', () => {
  const wrong = stream(5);
  wrong[3 * FRAME_BYTES + 99] = (wrong[3 * FRAME_BYTES + 99] as number) ^ 1;
  const lost = Buffer.concat([stream(3).subarray(0, 4000), stream(3).subarray(4001)]);
  const repeated = Buffer.concat([stream(2), frame(7, 'up', 1, false)]);
  const skipped = Buffer.concat([stream(2), frame(7, 'up', 3, false)]);
  const cases = { wrong, lost, repeated, skipped, tunnel: frame(8, 'up', 0, false), way: frame(7, 'down', 0, false) };
  for (const [name, bytes] of Object.entries(cases)) {
    assert.match(new FrameReader(7, 'up').take(bytes) ?? '', /wrong bytes in frame/, name);
  }
  assert.match(
    new FrameReader(7, 'up').take(Buffer.concat([stream(2, true), Buffer.alloc(1)])) ?? '',
    /1 bytes behind/,
  );
});
