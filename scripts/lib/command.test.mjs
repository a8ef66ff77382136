import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { command } from './command.mjs';

const MODULE = new URL('command.mjs', import.meta.url).href;
/** A shell that starts another program, which says its process id, and waits for it. Neither ends by itself in time. */
const NESTED = `sh -c 'echo $$; exec sleep 600'; true`;

test('a late command ends with what it started', { timeout: 60_000 }, async () => {
  const { status, output } = await late(['sh', '-c', NESTED]);
  assert.equal(status, 124);
  assert.match(output, /sh was still running after [\d.]+ s/);
  await gone(Number.parseInt(output, 10));
});

test('a late command that ignores SIGTERM is killed', { timeout: 60_000 }, async () => {
  const { status, output } = await late(['sh', '-c', `trap '' TERM; ${NESTED}`]);
  assert.equal(status, 124);
  await gone(Number.parseInt(output, 10));
});

test('a late script ends the commands that it runs', { timeout: 60_000 }, async () => {
  const { output } = await late(script());
  await gone(Number.parseInt(output, 10));
});

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  test(`${signal} ends a script and what its command started`, { timeout: 60_000 }, async () => {
    const [program, ...args] = script();
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    const [line] = await once(child.stdout, 'data');
    child.kill(signal);
    assert.deepEqual(await once(child, 'exit'), [null, signal]);
    await gone(Number.parseInt(line, 10));
  });
}

test('a command that is not there, fails, and leaves no listener', async () => {
  const before = process.listenerCount('SIGTERM');
  assert.equal((await command(['isthmus-has-no-such-program'])).status, 127);
  assert.equal(process.listenerCount('SIGTERM'), before);
});

/** Runs a command that is ended when its time is over, but has printed a process before: a busy machine starts it slowly. */
async function late(argv) {
  for (let timeout = 500; ; timeout *= 2) {
    const result = await command(argv, { timeout });
    if (/^\d+\n/.test(result.output)) return result;
  }
}

/** The command line of a script that runs a command and shows what it prints. */
function script() {
  const code = `import { command } from '${MODULE}'; await command(${JSON.stringify(['sh', '-c', NESTED])}, { show: () => true });`;
  return [process.execPath, '--input-type=module', '-e', code];
}

/** Waits until a process has ended. */
async function gone(pid) {
  assert.ok(pid > 0, 'it printed the process');
  while (!/\) Z /.test(stat(pid))) await setTimeout(20);
}

/** /proc/PID/stat; as of a zombie if the process is gone. */
function stat(pid) {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return ') Z ';
  }
}
