import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { LogSink } from './log-sink.ts';

/** A log that can be told to fail, and how much of a write it takes. */
class Log {
  text = '';
  failure: string | undefined;
  most = Number.POSITIVE_INFINITY;

  readonly write = (bytes: Uint8Array): number => {
    if (this.failure) throw Object.assign(new Error(this.failure), { code: this.failure });
    const taken = Math.min(this.most, bytes.length);
    this.text += Buffer.from(bytes.subarray(0, taken)).toString();
    return taken;
  };
}

function logAndSink() {
  const log = new Log();
  const sink: LogSink = new LogSink(log.write, (lines, reason) => sink.write(`lost ${lines}: ${reason}\n`));
  return { log, sink };
}

for (const failure of ['ENOSPC', 'EAGAIN', 'EPIPE', 'EIO']) {
  test(`lines wait while the log fails with ${failure}, and come in order when it works`, () => {
    const { log, sink } = logAndSink();
    sink.write('1\n');
    log.failure = failure;
    sink.write('2\n');
    sink.write('3\n');
    log.failure = undefined;
    sink.write('4\n');
    assert.equal(log.text, '1\n2\n3\n4\n');
  });
}

test('a line that was written in parts stays one line', () => {
  const { log, sink } = logAndSink();
  log.most = 3;
  sink.write('hello\n');
  log.failure = 'ENOSPC';
  sink.write('world\n');
  log.failure = undefined;
  sink.flush();
  assert.equal(log.text, 'hello\nworld\n');
});

test('beyond a mebibyte lines are lost, and the log says how many', () => {
  const { log, sink } = logAndSink();
  log.failure = 'ENOSPC';
  const line = `${'x'.repeat(1023)}\n`;
  for (let i = 0; i < 1034; i++) sink.write(line);
  log.failure = undefined;
  sink.flush();
  assert.equal(log.text.length, 1024 * 1024 + 'lost 10: ENOSPC\n'.length);
  assert.match(log.text, /\nlost 10: ENOSPC\n$/);
  sink.write('on\n');
  assert.match(log.text, /lost 10: ENOSPC\non\n$/);
});

test('what waits is tried again although no line comes', (t: TestContext) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { log, sink } = logAndSink();
  log.failure = 'EAGAIN';
  sink.write('1\n');
  t.mock.timers.tick(100);
  assert.equal(log.text, '');
  log.failure = undefined;
  t.mock.timers.tick(100);
  assert.equal(log.text, '1\n');
  t.mock.timers.reset();
});
