import assert from 'node:assert/strict';
import { test } from 'node:test';
import { recorder } from '../testing/logs.ts';

test('the last lines are kept as JSON, whatever the format, without secrets and without lines below the level', () => {
  for (const format of ['text', 'json'] as const) {
    const { lines: written, logger } = recorder({ format });
    logger.info({ url: 'redis://user:word@redis' }, 'first');
    logger.debug({}, 'too fine');
    logger.child({ part: 'x' }).warn({}, 'second');
    const lines = [...logger.recent].map((line) => JSON.parse(line));
    assert.deepEqual(
      lines.map(({ level, msg, url, part }) => [level, msg, url, part]),
      [
        ['info', 'first', 'redis://user:[redacted]@redis', undefined],
        ['warn', 'second', undefined, 'x'],
      ],
    );
    assert.equal(written.length, 2);
  }
});

test('a thousand lines are kept, but only the beginning of a very long one', () => {
  const { logger } = recorder();
  for (let index = 0; index < 1005; index++) logger.info({ index }, 'line');
  logger.warn({ extra: 'y'.repeat(20_000) }, 'x'.repeat(20_000));
  const lines = [...logger.recent];
  assert.deepEqual([lines.length, logger.recent.forgotten, JSON.parse(lines[0] ?? '').index], [1000, 6, 6]);
  const { level, msg, characters } = JSON.parse(lines.at(-1) ?? '');
  assert.deepEqual([level, msg], ['warn', 'x'.repeat(4000)]);
  assert.ok(characters > 40_000);
});

test('a level that is set at run time applies at once', () => {
  const { logger } = recorder();
  logger.level = logger.levelOf(6);
  logger.debug({}, 'now it shows');
  assert.equal([...logger.recent].length, 1);
});
