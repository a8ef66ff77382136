import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import process from 'node:process';
import { type TestContext, test } from 'node:test';
import { LogSink } from './log-sink.ts';

/** A log that fails on demand and has limited room. Each write takes 5 ms of its clock. */
class Log {
  now = 0;
  text = '';
  writes = 0;
  readonly written: string[] = [];
  /** How many more writes fail with EAGAIN. */
  busy = 0;
  failure: string | undefined;
  room = Number.POSITIVE_INFINITY;

  readonly write = (bytes: Uint8Array): number => {
    this.writes++;
    this.now += 5;
    if (this.busy-- > 0) throw Object.assign(new Error('busy'), { code: 'EAGAIN' });
    if (this.failure) throw Object.assign(new Error(this.failure), { code: this.failure });
    if (this.room === 0) throw Object.assign(new Error('full'), { code: 'ENOSPC' });
    const taken = Math.min(this.room, bytes.length);
    this.room -= taken;
    this.written.push(Buffer.from(bytes.subarray(0, taken)).toString());
    this.text += this.written.at(-1);
    return taken;
  };
}

function logAndSink() {
  const log = new Log();
  const sink: LogSink = new LogSink(log.write, (lines, reason) => sink.write(`lost ${lines}: ${reason}\n`));
  return { log, sink };
}

function tick(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

test('the lines of one event loop tick are one write', async () => {
  const { log, sink } = logAndSink();
  sink.write('1\n');
  sink.write('zwölf\n');
  assert.equal(log.writes, 0);
  await tick();
  assert.deepEqual([log.text, log.writes], ['1\nzwölf\n', 1]);
  sink.write('3\n');
  await tick();
  assert.deepEqual([log.text, log.writes], ['1\nzwölf\n3\n', 2]);
});

test('many lines are written in pieces of whole lines, each small enough for one pipe write', () => {
  const { log, sink } = logAndSink();
  const lines = Array.from({ length: 500 }, (_, i) => `${i} ${'x'.repeat(300)}\n`);
  lines[250] = `${'y'.repeat(10_000)}\n`;
  for (const line of lines) sink.write(line);
  sink.flush();
  assert.equal(log.text, lines.join(''));
  assert.ok(log.written.every((piece) => piece.endsWith('\n')));
  assert.deepEqual(
    log.written.filter((piece) => piece.length > 4096),
    [lines[250]],
  );
  assert.ok(log.writes < 50, `${log.writes} writes`);
});

test('a long event loop tick loses no lines while the log accepts them', () => {
  const { log, sink } = logAndSink();
  const line = `${'x'.repeat(1023)}\n`;
  for (let i = 0; i < 3000; i++) sink.write(line);
  sink.flush();
  assert.equal(log.text.length, 3000 * 1024);
});

test('a line that is too long for any log is lost, and the log says so', async () => {
  const { log, sink } = logAndSink();
  sink.write('x'.repeat(2 ** 20 + 1));
  await tick();
  assert.equal(log.text, 'lost 1: too long\n');
});

for (const failure of ['ENOSPC', 'EAGAIN', 'EPIPE', 'EIO']) {
  test(`lines wait while the log fails with ${failure}, and follow in order once it works`, async () => {
    const { log, sink } = logAndSink();
    sink.write('1\n');
    await tick();
    log.failure = failure;
    sink.write('2\n');
    await tick();
    sink.write('3\n');
    log.failure = undefined;
    sink.write('4\n');
    await tick();
    assert.equal(log.text, '1\n2\n3\n4\n');
  });
}

test('a line that was written in parts stays one line', () => {
  const { log, sink } = logAndSink();
  log.room = 8;
  sink.write('hello\n');
  sink.write('world\n');
  sink.flush();
  assert.equal(log.text, 'hello\nwo');
  sink.write('again\n');
  log.room = Number.POSITIVE_INFINITY;
  sink.flush();
  assert.equal(log.text, 'hello\nworld\nagain\n');
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
  sink.flush();
  assert.match(log.text, /lost 10: ENOSPC\non\n$/);
});

test('a later loss is not reported with the reason of an earlier failure', async () => {
  const { log, sink } = logAndSink();
  log.failure = 'EAGAIN';
  sink.write('1\n');
  sink.flush();
  log.failure = undefined;
  sink.flush();
  sink.write('x'.repeat(2 ** 20 + 1));
  await tick();
  assert.equal(log.text, '1\nlost 1: too long\n');
});

test('a process that exits waits a little for a slow reader, and writes later lines immediately', (t) => {
  const { log, sink } = logAndSink();
  t.mock.method(performance, 'now', () => log.now);
  log.busy = 3;
  sink.write('1\n');
  sink.exit();
  assert.equal(log.text, '1\n');
  log.busy = 3;
  sink.write('2\n');
  assert.equal(log.text, '1\n2\n');
});

for (const [failure, tries] of [
  ['ENOSPC', 1],
  ['EAGAIN', 200 / 5],
] as const) {
  test(`a log that fails with ${failure} does not hold up a process that exits`, (t) => {
    const { log, sink } = logAndSink();
    t.mock.method(performance, 'now', () => log.now);
    log.failure = failure;
    sink.write('1\n');
    sink.exit();
    assert.equal(log.writes, tries);
    for (let i = 0; i < 50; i++) sink.write('2\n');
    assert.equal(log.writes, tries + 50, 'what comes later waits no more');
  });
}

test('waiting lines are retried even if no new line arrives', (t: TestContext) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { log, sink } = logAndSink();
  log.failure = 'EAGAIN';
  sink.write('1\n');
  sink.flush();
  t.mock.timers.tick(100);
  assert.equal(log.text, '');
  log.failure = undefined;
  t.mock.timers.tick(100);
  assert.equal(log.text, '1\n');
  t.mock.timers.reset();
});

const onDeno = 'Deno' in globalThis;

const url = (path: string) => JSON.stringify(import.meta.url.replace('logging/log-sink.test', path));

/** A program that has to record a failed dial, cannot open its audit file, and exits. */
const program = `
import process from 'node:process';
import { DialError, dialLog, planeEvents } from ${JSON.stringify(import.meta.resolve('@isthmus/tunnel'))};
import { auditTrail } from ${url('audit/trail')};
import { createLogger } from ${url('logging/logger')};
import { request } from ${url('testing/events')};

const logger = createLogger({ name: 'gateway', format: 'json', verbosity: 0 });
const events = planeEvents();
const where = { process: 'gw-1', of: { dials: true, others: false }, log: '/dev/null/audit.log' };
await auditTrail(events, { ...where, program: 'p', role: 'gateway', version: '1', logger });
logger.error({}, 'before');
const error = new DialError('dns_error', 'no such host');
events.emit('dial:end', 'gateway', { ...request, log: dialLog() }, { ms: 1, error });
process.exit(3);
`;

test('what is logged while a process exits is written, even by listeners that are called late', () => {
  // Passed on standard input, because Deno resolves imports from the program's directory or from where it is run.
  const launch = onDeno ? ['run', '--allow-all', '--no-check', '-'] : ['--input-type=module', '-'];
  const { status, stderr } = spawnSync(process.execPath, launch, { input: program, encoding: 'utf8', timeout: 60_000 });
  assert.equal(status, 3, stderr);
  assert.match(stderr, /"msg":"before"}\n(.*\n)*.*"msg":"audit records are lost"}\n$/);
});
