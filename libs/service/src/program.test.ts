import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { bind } from '@isthmus/runtime';
import { DEADLINE_MS } from '@isthmus/runtime/testing';
import { startFailure, VERSION } from './program.ts';

const onDeno = 'Deno' in globalThis;
const dir = mkdtempSync(join(tmpdir(), 'isthmus-program-'));
const children = new Set<ChildProcess>();
after(() => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(dir, { recursive: true });
});

const here = (name: string) => JSON.stringify(import.meta.url.replace('program.test', name));

/** Returns the source of a program with one listener. `start` is the body of its start function. */
function source(start: string, table = ''): string {
  return `
import net from 'node:net';
import process from 'node:process';
import * as flag from ${JSON.stringify(import.meta.resolve('@isthmus/flags/testing'))};
import { runProgram, VERSION } from ${here('program')};
const flags = flag.topic('Test', {
  'main-port': flag.int(0, 'Main port.', { port: { bind: 'main-address', lowest: 0, highest: 65535 } }),
  'main-address': flag.string('127.0.0.1', 'Main address.'),
  'uds-name': flag.string('', 'Socket.'),
  vmodule: flag.moduleSpec('', 'Modules.', { inert: 'none' }),
  help: flag.bool(false, 'Help.', { short: 'h' }),
  version: flag.bool(false, 'Version.'),
  ${table}
});
const say = (level) => (fields, text) => process.stderr.write(level + ' ' + text + ' ' + (fields.err?.message ?? '') + '\\n');
const log = { info: say('info'), warn: say('warn'), error: say('error'), fatal: say('fatal') };
const never = () => new Promise(() => setInterval(() => {}, 1000));
runProgram({
  name: 'tester', summary: 'Tests.', flags, check() {}, log: () => log,
  async start(values, context) { ${start} },
});`;
}

const UP = `
const server = net.createServer();
const place = values['uds-name'] || undefined;
server.listen(place ? { path: place } : { port: values['main-port'], host: values['main-address'] });
await new Promise((resolve, reject) => server.once('listening', resolve).once('error', reject));
process.stdout.write('up ' + VERSION + '\\n');
const close = () => new Promise((resolve) => server.close(resolve));`;
const ORDERLY = `${UP}
return {
  async drain() { process.stdout.write('drain\\n'); await new Promise((resolve) => setTimeout(resolve, 50)); },
  async close() { process.stdout.write('close\\n'); await close(); },
};`;

/** A running program, its output and its exit status. */
class Run {
  out = '';
  err = '';
  readonly #child: ChildProcess;
  readonly ended: Promise<number | null>;

  constructor(code: string, args: readonly string[]) {
    const path = join(dir, `${children.size}.mjs`);
    writeFileSync(path, code);
    // The file lies outside the workspace, by whose configuration Deno finds our packages.
    const config = `--config=${fileURLToPath(new URL('../../../deno.json', import.meta.url))}`;
    const launch = onDeno ? ['run', '--allow-all', '--no-check', config, path] : [path];
    this.#child = spawn(process.execPath, [...launch, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    children.add(this.#child);
    this.#child.stdout?.on('data', (chunk) => {
      this.out += chunk;
    });
    this.#child.stderr?.on('data', (chunk) => {
      this.err += chunk;
    });
    this.ended = once(this.#child, 'close', { signal: AbortSignal.timeout(DEADLINE_MS) }).then(([status]) => status);
  }

  /** Not with the child's `kill`, which on Deno loses the exit status. */
  signal(signal: NodeJS.Signals): void {
    process.kill(this.#child.pid as number, signal);
  }

  /** Waits until the output matches. */
  async saw(pattern: RegExp): Promise<void> {
    const deadline = AbortSignal.timeout(DEADLINE_MS);
    while (!pattern.test(this.out + this.err)) {
      const { stdout, stderr } = this.#child;
      const some = [stdout, stderr].map((stream) => stream && once(stream, 'data', { signal: deadline }));
      await Promise.race([...some, this.ended]);
      assert.equal(this.#child.exitCode, null, `ended before ${pattern}: ${this.out}${this.err}`);
    }
  }
}

const run = (start: string, args: readonly string[] = [], table = '') => new Run(source(start, table), args);

test('SIGTERM and SIGINT drain, then close, then exit with 0', async () => {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    const program = run(ORDERLY);
    await program.saw(/^up/);
    program.signal(signal);
    assert.equal(await program.ended, 0, program.err);
    assert.equal(program.out, `up ${VERSION}\ndrain\nclose\n`);
    assert.match(program.err, /^info stopping/);
  }
});

/** V8 has its quick compiler since version 13: Node 24. */
const compilesQuickly = !onDeno && Number.parseInt(process.versions.v8, 10) >= 13;

test('a program compiles what runs after fewer calls than V8 waits for', {
  skip: !compilesQuickly,
}, async () => {
  const program = run(`
const { setFlagsFromString } = process.getBuiltinModule('node:v8');
setFlagsFromString('--allow-natives-syntax');
const OPTIMISED = 1 << 4;
const isCompiled = new Function('run', 'return (%GetOptimizationStatus(run) & ' + OPTIMISED + ') !== 0');
const work = (text) => text.length + 1;
setImmediate(() => {
  for (let calls = 0; calls < 300; calls++) work('ab');
  process.stdout.write('called\\n');
  setInterval(() => isCompiled(work) && process.stdout.write('compiled\\n'), 5);
});
${ORDERLY}`);
  await program.saw(/called/);
  await program.saw(/compiled/);
  program.signal('SIGTERM');
  assert.equal(await program.ended, 0, program.err);
});

test('what a compilation used is freed as it ends, and not behind all others', {
  skip: !compilesQuickly,
}, async () => {
  const program = run(`
const { getHeapStatistics } = process.getBuiltinModule('node:v8');
const lines = Array.from({ length: 60 }, (_, at) => 'sum += text.charCodeAt(' + at + ' % text.length) ^ sum;');
const many = Array.from({ length: 200 }, (_, first) => new Function('text', 'let sum = ' + first + ';' + lines.join('') + 'return sum;'));
let rounds = 200;
setImmediate(function call() {
  for (const each of many) for (let calls = 0; calls < 5; calls++) each('abcdef' + calls);
  if (--rounds > 0) setImmediate(call);
  else process.stdout.write('peak ' + Math.round(getHeapStatistics().peak_malloced_memory / 1e6) + ' MB\\n');
});
${ORDERLY}`);
  await program.saw(/peak \d+ MB/);
  const [, peak] = program.out.match(/peak (\d+) MB/) ?? [];
  // About 7, and 100 otherwise.
  assert.ok(Number(peak) < 40, `${peak} MB`);
  program.signal('SIGTERM');
  assert.equal(await program.ended, 0, program.err);
});

test('a second signal ends a drain at once, with status 128 plus its number', async () => {
  for (const [signal, status] of [
    ['SIGTERM', 143],
    ['SIGINT', 130],
  ] as const) {
    const program = run(`${UP} return { drain() { process.stdout.write('drain\\n'); return never(); }, close };`);
    await program.saw(/^up/);
    program.signal('SIGTERM');
    await program.saw(/drain/);
    program.signal(signal);
    assert.equal(await program.ended, status, program.err);
  }
});

test('a signal before the program is up ends it at once', async () => {
  const program = run(`process.stdout.write('starting\\n'); return never();`);
  await program.saw(/starting/);
  program.signal('SIGTERM');
  assert.equal(await program.ended, 143);
});

const timeout = (value: string) => `'graceful-shutdown-timeout': flag.duration(${value}, 'Limit.'),`;

test('the drain ends at its time limit, and the program still closes', async () => {
  const program = run(
    `${UP} return { drain: never, async close() { process.stdout.write('close\\n'); await close(); } };`,
    ['--graceful-shutdown-timeout=30ms'],
    timeout('0'),
  );
  await program.saw(/^up/);
  program.signal('SIGTERM');
  assert.equal(await program.ended, 0);
  assert.match(program.out, /close/);
  assert.match(program.err, /^warn the time for draining is over/m);
});

test('a graceful shutdown of 0 closes without draining, as in upstream', async () => {
  const program = run(ORDERLY, [], timeout('0'));
  await program.saw(/^up/);
  program.signal('SIGTERM');
  assert.equal(await program.ended, 0);
  assert.doesNotMatch(program.out, /drain/);
});

test('it keeps serving during the shutdown delay, no longer ready, and drains afterwards', async () => {
  const program = run(
    `${UP} return {
      leave() { process.stdout.write('leave\\n'); setTimeout(() => process.stdout.write('still up\\n'), 20); },
      async drain() { process.stdout.write('drain\\n'); },
      close,
    };`,
    ['--shutdown-delay-duration=100ms', '--graceful-shutdown-timeout=1s'],
    `${timeout('0')} 'shutdown-delay-duration': flag.duration(0, 'Delay.'),`,
  );
  await program.saw(/^up/);
  program.signal('SIGTERM');
  assert.equal(await program.ended, 0);
  assert.match(program.out, /leave\nstill up\ndrain\n/);
});

test('a program that must end says why, drains, and exits with status 1', async () => {
  const program = run(`${UP} return {
    mustEnd: Promise.resolve(new Error('another one is in charge')),
    async drain() { process.stdout.write('drain\\n'); },
    close,
  };`);
  assert.equal(await program.ended, 1);
  assert.match(program.out, /drain/);
  assert.match(program.err, /^error stopping/m);
});

test('a failed drain is logged, and the program closes', async () => {
  const program = run(`${UP} return { async drain() { throw new Error('no drain'); }, close };`);
  await program.saw(/^up/);
  program.signal('SIGTERM');
  assert.equal(await program.ended, 1);
  assert.match(program.err, /^error draining failed no drain$/m);
});

test('no crash is silent', async () => {
  const rows = [
    [`setTimeout(() => { throw new Error('boom'); }); return never();`, /^fatal crashed: uncaught error boom$/m],
    [`Promise.reject(new Error('boom')); return never();`, /^fatal crashed: unhandled rejection boom$/m],
    [`Promise.reject('a string'); return never();`, /^fatal crashed: unhandled rejection/m],
  ] as const;
  for (const [start, wanted] of rows) {
    const program = run(start);
    assert.equal(await program.ended, 1);
    assert.match(program.err, wanted);
  }
});

test('an invalid command line gives one line on standard error and status 1, and nothing starts', async () => {
  const rows = [
    ['--main-prt=1', 'tester: --main-prt: unknown flag; the nearest known one is --main-port\n'],
    ['--main-port=x', 'tester: --main-port: bad value "x": want a whole number\n'],
    ['extra', 'tester: "extra": unexpected argument; flags begin with --\n'],
  ] as const;
  for (const [arg, wanted] of rows) {
    const program = run(ORDERLY, [arg]);
    assert.equal(await program.ended, 1);
    assert.equal(program.err, wanted);
    assert.equal(program.out, '');
  }
});

test('--help and --version print to standard output with status 0', async () => {
  const help = run(ORDERLY, ['--help']);
  assert.equal(await help.ended, 0);
  assert.match(help.out, /^Tests\.\n\nUsage:\n {2}tester \[flags\]\n\nTest:\n {6}--main-port int/);
  const version = run(ORDERLY, ['--version']);
  assert.equal(await version.ended, 0);
  assert.equal(version.out, `tester ${VERSION}\n`);
});

test('flags without effect are named in one warning', async () => {
  const program = run(ORDERLY, ['--vmodule=a=1']);
  await program.saw(/^up/m);
  program.signal('SIGTERM');
  await program.ended;
  assert.match(program.err, /^warn these flags have no effect here: --vmodule \(none\)/);
});

test('a listener that cannot be opened gives one line that names its flag', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const { port } = taken.address() as { port: number };
  const rows = [
    [
      `--main-port=${port}`,
      `tester: --main-port: cannot listen on 127.0.0.1:${port}: something already listens there (EADDRINUSE)\n`,
    ],
    [
      '--main-address=192.0.2.1',
      /^tester: --main-address: cannot listen on 192\.0\.2\.1: this machine has no such address \((EADDRNOTAVAIL|EINVAL)\)\n$/,
    ],
    [`--uds-name=${dir}/none/s`, /^tester: --uds-name: cannot listen on .*\/none\/s: [^\n]+\n$/],
  ] as const;
  for (const [arg, wanted] of rows) {
    const program = run(ORDERLY, [arg]);
    assert.equal(await program.ended, 1);
    if (typeof wanted === 'string') assert.equal(program.err, wanted);
    else assert.match(program.err, wanted);
    assert.equal(program.out, '');
  }
  taken.close();
});

test('other failures to start also give one line, and a bug in the program shows its location', async () => {
  const plain = run(`throw new Error('no registry\\n  at all');`);
  assert.equal(await plain.ended, 1);
  assert.equal(plain.err, 'tester: cannot start: no registry at all\n');
  const mistake = run('undefined.x');
  assert.equal(await mistake.ended, 1);
  assert.match(mistake.err, /^tester: cannot start: TypeError: .*\n {4}at /);
});

test('VERSION is the version in package.json', () => {
  const path = new URL('../package.json', import.meta.url);
  assert.ok(existsSync(path));
  assert.equal(JSON.parse(readFileSync(path, 'utf8')).version, VERSION);
});

test('a socket path that is refused names its flag, whatever refuses it', async (context) => {
  const dir = await mkdtemp(join(tmpdir(), 'start-'));
  context.after(() => rm(dir, { recursive: true }));
  const path = join(dir, 'taken');
  await writeFile(path, '');
  const missing = join(dir, 'none', 's');
  const rows = [
    [path, false, `--uds-name: ${path} exists already (--delete-existing-uds-file would delete it)`],
    [path, true, `--uds-name: ${path} exists and is not a unix socket`],
    [missing, true, `--uds-name: cannot listen on ${missing}: `],
  ] as const;
  for (const [at, deleteExisting, wanted] of rows) {
    const limits = { enter: () => true };
    const error = await bind(createServer(), { at: { path: at, deleteExisting }, limits, failed() {} }).catch((e) => e);
    const values = { 'uds-name': at, 'admin-uds-name': join(dir, 'other') };
    assert.ok(startFailure(error, {}, values).startsWith(wanted), startFailure(error, {}, values));
    const wrapped = new Error('cannot listen on the admin address', { cause: error });
    const admin = startFailure(wrapped, {}, { 'uds-name': '', 'admin-uds-name': at });
    assert.ok(admin.startsWith(wanted.replace('--uds-name', '--admin-uds-name')), admin);
  }
});
