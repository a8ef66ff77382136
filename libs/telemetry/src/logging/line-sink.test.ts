import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { after, describe, mock, type TestContext, test } from 'node:test';
import { LineSink } from './line-sink.ts';

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

/** No descriptor of this process. Each test has its own, as a sink that fails tries again when its test is over. */
let descriptor = 2 ** 30;

/** Returns a sink that writes to a log, and says in it how many lines were lost. */
function logAndSink(t: TestContext) {
  const log = new Log();
  const own = ++descriptor;
  const write = fs.writeSync as (fd: number, data: string | Uint8Array) => number;
  t.mock.method(fs, 'writeSync', (fd: number, data: string | Uint8Array) =>
    fd === own ? log.write(Buffer.from(data)) : write(fd, data),
  );
  const works = (lost: number, reason: string) => void (lost > 0 && sink.write(`lost ${lost}: ${reason}\n`));
  const sink: LineSink = new LineSink(own, 2 ** 20, { works });
  return { log, sink };
}

function tick(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

test('the lines of one event loop tick are one write', async (t) => {
  const { log, sink } = logAndSink(t);
  sink.write('1\n');
  sink.write('zwölf\n');
  assert.equal(log.writes, 0);
  await tick();
  assert.deepEqual([log.text, log.writes], ['1\nzwölf\n', 1]);
  sink.write('3\n');
  await tick();
  assert.deepEqual([log.text, log.writes], ['1\nzwölf\n3\n', 2]);
});

test('many lines are written in pieces of whole lines, each small enough for one pipe write', (t) => {
  const { log, sink } = logAndSink(t);
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

test('a long event loop tick loses no lines while the log accepts them', (t) => {
  const { log, sink } = logAndSink(t);
  const line = `${'x'.repeat(1023)}\n`;
  for (let i = 0; i < 3000; i++) sink.write(line);
  sink.flush();
  assert.equal(log.text.length, 3000 * 1024);
});

test('a line that is too long for any log is lost, and the log says so', async (t) => {
  const { log, sink } = logAndSink(t);
  sink.write(`${'x'.repeat(2 ** 20)}\n`);
  await tick();
  sink.flush();
  assert.equal(log.text, 'lost 1: too long\n');
});

for (const failure of ['ENOSPC', 'EAGAIN', 'EPIPE', 'EIO']) {
  test(`lines wait while the log fails with ${failure}, and follow in order once it works`, async (t) => {
    const { log, sink } = logAndSink(t);
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

test('a line that was written in parts stays one line', (t) => {
  const { log, sink } = logAndSink(t);
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

test('beyond a mebibyte lines are lost, and the log says how many', (t) => {
  const { log, sink } = logAndSink(t);
  log.failure = 'ENOSPC';
  const line = `${'x'.repeat(1023)}\n`;
  for (let i = 0; i < 1034; i++) sink.write(line);
  log.failure = undefined;
  sink.flush();
  sink.flush();
  const lost = Number(/\nlost (\d+): ENOSPC\n$/.exec(log.text)?.[1]);
  const kept = log.text.split('\n').length - 2;
  assert.equal(kept + lost, 1034);
  // The lines of a tick are not among what waits.
  assert.ok(kept >= 1024 && kept <= 1024 + 4, `${kept} lines`);
  sink.write('on\n');
  sink.flush();
  assert.match(log.text, /ENOSPC\non\n$/);
});

test('a later loss is not reported with the reason of an earlier failure', async (t) => {
  const { log, sink } = logAndSink(t);
  log.failure = 'EAGAIN';
  sink.write('1\n');
  sink.flush();
  log.failure = undefined;
  sink.flush();
  sink.write(`${'x'.repeat(2 ** 20)}\n`);
  await tick();
  sink.flush();
  assert.equal(log.text, '1\nlost 1: too long\n');
});

test('a process that exits waits a little for a slow reader, and writes later lines immediately', (t) => {
  const { log, sink } = logAndSink(t);
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
    const { log, sink } = logAndSink(t);
    t.mock.method(performance, 'now', () => log.now);
    log.failure = failure;
    sink.write('1\n');
    sink.exit();
    assert.equal(log.writes, tries);
    for (let i = 0; i < 50; i++) sink.write('2\n');
    assert.ok(log.writes <= tries + 2 * 50, 'what comes later waits no more');
  });
}

test('waiting lines are retried even if no new line arrives', (t: TestContext) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { log, sink } = logAndSink(t);
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

describe('a file', () => {
  const directory = fs.mkdtempSync(join(tmpdir(), 'isthmus-lines-'));
  after(() => fs.rmSync(directory, { recursive: true }));

  /** Returns a sink of a file, and what it reports. */
  function fileSink(name: string) {
    const told: string[] = [];
    const path = join(directory, name);
    const sink = new LineSink(path, 2 ** 20, {
      failing: (reason) => void told.push(`failing ${reason}`),
      works: () => void told.push('works'),
      kept: (reason) => void told.push(`kept ${reason}`),
      lost: (lines) => void told.push(`lost ${lines}`),
    });
    return { sink, told, path, read: (of = path) => fs.readFileSync(of, 'utf8') };
  }

  test('is appended to, and after a reopen lines go to the file that has the name by then', () => {
    fs.writeFileSync(join(directory, 'log'), '0\n');
    const { sink, told, path, read } = fileSink('log');
    sink.write('1\n');
    sink.flush();
    fs.renameSync(path, `${path}.1`);
    sink.write('2\n');
    sink.flush();
    sink.reopen();
    sink.write('3\n');
    sink.flush();
    assert.deepEqual([read(`${path}.1`), read(), told], ['0\n1\n2\n', '3\n', []]);
    assert.equal(fs.statSync(path).mode & 0o137, 0);
  });

  test('that cannot be reopened stays open until it can be, and its descriptor is closed once', async () => {
    const { sink, told, path, read } = fileSink('kept');
    const closed: number[] = [];
    const close = fs.close;
    mock.method(fs, 'close', (fd: number, done: () => void) => {
      closed.push(fd);
      close(fd, done);
    });
    fs.renameSync(path, `${path}.1`);
    fs.mkdirSync(path);
    sink.reopen();
    sink.write('1\n');
    sink.flush();
    assert.deepEqual([read(`${path}.1`), told], ['1\n', ['kept EISDIR']]);
    fs.rmdirSync(path);
    sink.reopen();
    sink.write('2\n');
    sink.flush();
    await tick();
    mock.restoreAll();
    assert.deepEqual([read(), told], ['2\n', ['kept EISDIR']]);
    assert.ok(closed.length > 0);
    assert.equal(new Set(closed).size, closed.length);
  });

  test('that cannot be opened at first is opened once it can be', () => {
    const { sink, told, read } = fileSink('late/log');
    assert.deepEqual(told, ['failing ENOENT']);
    sink.write('1\n');
    sink.flush();
    fs.mkdirSync(join(directory, 'late'));
    sink.write('2\n');
    sink.flush();
    assert.deepEqual([read(), told], ['2\n', ['failing ENOENT', 'lost 1', 'works']]);
  });

  test('that a process leaves has all its lines, and the rest is counted', () => {
    const { sink, read } = fileSink('left');
    sink.write('1\n');
    assert.deepEqual([sink.exit(), read()], [0, '1\n']);
    mock.method(fs, 'writeSync', () => {
      throw Object.assign(new Error('full'), { code: 'ENOSPC' });
    });
    sink.write('2\n');
    sink.write('3\n');
    const left = sink.exit();
    mock.restoreAll();
    assert.equal(left, 2);
  });
});

const onDeno = 'Deno' in globalThis;

const url = (path: string) => JSON.stringify(import.meta.url.replace('logging/line-sink.test', path));

/** A program that has to record a failed dial, cannot open its audit file, and exits. */
const program = `
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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
