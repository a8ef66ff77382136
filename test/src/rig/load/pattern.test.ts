import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Position } from './pattern.ts';

function stream(bytes: number): Buffer {
  const at = new Position();
  const chunks: Buffer[] = [];
  for (let made = 0; made < bytes; made += 10_000) chunks.push(at.next(10_000));
  return Buffer.concat(chunks);
}

test('the pattern is recognised whatever the size of the chunks', () => {
  const bytes = stream(300_000);
  for (const size of [1000, 65_521, 65_536, 300_000]) {
    const at = new Position();
    for (let from = 0; from < bytes.length; from += size) {
      assert.ok(at.matches(bytes.subarray(from, from + size)), `chunks of ${size}`);
    }
  }
});

test('a wrong, lost, doubled or swapped part is detected', () => {
  const bytes = stream(200_000);
  const wrong = Buffer.from(bytes);
  wrong[150_000] = (wrong[150_000] as number) ^ 1;
  const lost = Buffer.concat([bytes.subarray(0, 70_000), bytes.subarray(70_001)]);
  const doubled = Buffer.concat([bytes.subarray(0, 10_000), bytes]);
  const swapped = Buffer.concat([bytes.subarray(65_536, 131_072), bytes.subarray(0, 65_536)]);
  for (const [name, each] of Object.entries({ wrong, lost, doubled, swapped })) {
    assert.equal(new Position().matches(each), false, name);
  }
});
