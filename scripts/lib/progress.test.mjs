import assert from 'node:assert/strict';
import { test } from 'node:test';
import { progressText, withProgress } from './progress.mjs';

test('progress says what is done, what is left, and how long that takes', () => {
  assert.equal(progressText([30, 40], 30_000), '30 of 40, about 10 s left');
  assert.equal(progressText([1, 40], 1000), '1 of 40', 'too early to say');
  assert.equal(progressText([40, 40], 1000), '40 of 40');
  assert.equal(progressText(undefined, 1200), '1.2 s so far');
});

test('a log has lines, and a terminal one line; both say how long it took, also of what failed', async () => {
  for (const isTTY of [false, true]) {
    let shown = '';
    const stream = { isTTY, write: (text) => (shown += text) };
    assert.equal(
      await withProgress(
        'Building',
        async () => 7,
        () => [1, 2],
        stream,
      ),
      7,
    );
    assert.match(
      shown,
      isTTY ? /^Building \.\.\. \r.*Building: 0\.\d s\n$/ : /^Building \.\.\. \n {2}Building: 0\.\d s\n$/,
    );
    await assert.rejects(
      withProgress(
        'Building',
        () => Promise.reject(new Error('no')),
        () => [1, 2],
        stream,
      ),
      /no/,
    );
  }
});
