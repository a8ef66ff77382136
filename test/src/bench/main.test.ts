import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type Scope, scoped, tempDir, unlessSlow } from '../harness/index.ts';
import { pathsMissing } from '../rig/network.ts';
import { PATHS } from './paths.ts';
import type { Book } from './store.ts';

const MAIN = fileURLToPath(new URL('main.ts', import.meta.url));

/** @param told called with what it has written so far */
async function bench(scope: Scope, args: readonly string[], told?: (text: string, stop: () => void) => void) {
  const child = spawn(process.execPath, [MAIN, ...args]);
  scope.defer(() => child.kill('SIGKILL'));
  let text = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      text += chunk;
      told?.(text, () => child.kill('SIGTERM'));
    });
  const [status] = await once(child, 'close');
  return { status, text };
}

for (const idle of ['abc', '-1', '1.5'])
  test(
    `--idle=${idle} is refused`,
    scoped(async (scope) => {
      const { status, text } = await bench(scope, ['--one-address', '--front=none', `--idle=${idle}`]);
      assert.deepEqual([status, text.split('\n')[0]], [2, '--idle needs a whole number.']);
    }),
  );

test('paths are measured in each round', () => {
  const once = PATHS.filter((line) => line.once).map(({ name }) => name);
  assert.deepEqual(once, []);
});

test(
  'a run over paths that is stopped keeps what it has measured',
  { skip: unlessSlow() || pathsMissing() },
  scoped(async (scope) => {
    const json = join(await tempDir(scope), 'runs.json');
    let stopped = false;
    const args = ['--paths', '--line=50ms-0%', '--front=tcp', '--seconds=0.2', `--json=${json}`];
    const { text } = await bench(scope, args, (told, stop) => {
      if (!stopped && told.includes('\n')) stop();
      stopped ||= told.includes('\n');
    });
    assert.ok(existsSync(json), text);
    const { runs } = JSON.parse(readFileSync(json, 'utf8')) as Book;
    assert.ok(runs.length > 0, text);
    assert.match(text, /\d+ passed, \d+ failed\n$/);
  }),
);
