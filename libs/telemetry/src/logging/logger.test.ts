import assert from 'node:assert/strict';
import { test } from 'node:test';
import { recorder } from '../testing/logs.ts';
import { levelOf } from './logger.ts';

/** Returns a text line without its time. */
function text(line: string | undefined): string {
  assert.match(line ?? '', /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z /);
  return (line ?? '').slice(25);
}

test('JSON is as pino writes it, with an ISO time and the level as a word', () => {
  const { logger, records } = recorder();
  logger.info({ agent: 'a1' }, 'hello');
  const [{ time, ...rest }] = records();
  assert.equal(new Date(time).toISOString(), time);
  assert.deepEqual(rest, { level: 'info', name: 'gateway', agent: 'a1', msg: 'hello' });
});

test('each line has its own time, even if the clock stands still or goes back', (t) => {
  const { logger, records } = recorder();
  const start = Date.UTC(2026, 0, 1);
  const times = [start, start, start + 1, start - 5];
  const now = t.mock.method(Date, 'now');
  for (const time of times) {
    now.mock.mockImplementation(() => time);
    logger.info('hello');
  }
  now.mock.restore();
  assert.deepEqual(
    records().map(({ time }) => Date.parse(time)),
    times,
  );
});

test('text is one readable line', () => {
  const { logger, lines } = recorder({ format: 'text' });
  logger.info({ destination: '10.0.0.1:443', agent: 'a1', ms: 3.2, reason: 'two words' }, 'dial established');
  const expected = 'info  gateway  dial established destination=10.0.0.1:443 agent=a1 ms=3.2 reason="two words"\n';
  assert.equal(text(lines[0]), expected);
});

test('text from a peer cannot start a line or move the cursor', () => {
  const { logger, lines } = recorder({ format: 'text' });
  logger.warn({ remote: 'a\nb', text: 'x\u009b2J' }, 'refused\r\nfake');
  const expected = 'warn  gateway  refused\\u000d\\u000afake remote="a\\nb" text="x\\u009b2J"\n';
  assert.equal(text(lines[0]), expected);
});

test('an error shows its message, and its stack below a line of level error', () => {
  const { logger, lines } = recorder({ format: 'text' });
  logger.warn({ err: new Error('no luck') }, 'odd');
  logger.error({ err: new Error('no luck') }, 'bad');
  assert.equal(text(lines[0]), 'warn  gateway  odd err="no luck"\n');
  assert.match(text(lines[1]), /^error gateway {2}bad err="no luck"\n {6}at .+\n/);
});

test("klog's verbosity decides the level", () => {
  const levels = [-1, 0, 1, 2, 4, 5, 7, 8, 10].map(levelOf);
  assert.deepEqual(levels, ['warn', 'warn', 'warn', 'info', 'info', 'debug', 'debug', 'trace', 'trace']);
});

test('a fatal line is written immediately, whatever happens to the process', () => {
  const done: string[] = [];
  const destination = { write: (line: string) => void done.push(line), flush: () => void done.push('flushed') };
  const { logger } = recorder({ destination });
  logger.error({}, 'bad');
  logger.fatal({}, 'worse');
  assert.deepEqual(
    done.map((line) => /bad|worse|flushed/.exec(line)?.[0]),
    ['bad', 'worse', 'flushed'],
  );
});
