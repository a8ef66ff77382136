import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { onDeno, ROOT } from '../harness/runtime.ts';

/** What is packed is for npm, whatever runs this. */
const skip = onDeno && 'npm is of Node';
const BIN = `${ROOT}node_modules/.bin`;
const RUN_MS = 120_000;
const LONGEST_EXAMPLE = 20;

const place = mkdtempSync(join(tmpdir(), 'isthmus-wire-'));
const folder = join(place, 'empty');
after(() => rmSync(place, { recursive: true, force: true }));

async function run(program: string, ...args: readonly string[]): Promise<string> {
  // What `npm run` tells its children about this workspace is wrong elsewhere.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('npm_')));
  const { stdout } = await promisify(execFile)(program, args, { cwd: folder, env, timeout: RUN_MS });
  return stdout;
}

before(async () => {
  if (skip) return;
  mkdirSync(folder);
  const { packAlone } = await import(`${ROOT}scripts/lib/npm-packages.mjs`);
  const file: string = await packAlone('libs/wire', { to: place, scratch: join(place, 'scratch') });
  await run('npm', 'install', '--offline', '--no-audit', '--no-fund', file);
});

test('the package needs no other, and may be published', { skip }, () => {
  const modules = join(folder, 'node_modules');
  assert.deepEqual(
    readdirSync(modules).filter((name) => !name.startsWith('.')),
    ['@isthmus'],
  );
  assert.deepEqual(readdirSync(join(modules, '@isthmus')), ['wire']);
  const manifest = JSON.parse(readFileSync(join(modules, '@isthmus/wire/package.json'), 'utf8'));
  assert.deepEqual([manifest.private, manifest.dependencies], [undefined, undefined]);
});

test("its README's example runs on Node, and on Deno", { skip }, async () => {
  const readme = readFileSync(join(folder, 'node_modules/@isthmus/wire/README.md'), 'utf8');
  const [, example = ''] = /```js\n([\s\S]*?)```/.exec(readme) ?? [];
  assert.ok(example.trim().split('\n').length <= LONGEST_EXAMPLE);
  writeFileSync(join(folder, 'example.mjs'), example);
  assert.equal(await run(process.execPath, 'example.mjs'), 'one stream of many\n');
  const deno = join(BIN, 'deno');
  if (existsSync(deno)) assert.equal(await run(deno, 'run', '--allow-all', 'example.mjs'), 'one stream of many\n');
});

test('it has types', { skip }, async () => {
  const source = [
    "import { connect } from 'node:net';",
    "import { type Config, Http2Link, WIRE } from '@isthmus/wire';",
    'const config: Config = { ...WIRE, streams: 5 };',
    "const link = new Http2Link({ role: 'client', socket: connect(1), config });",
    '// @ts-expect-error: it is a number',
    'const rtt: string = link.rtt;',
    'export { rtt };',
  ];
  writeFileSync(join(folder, 'typed.ts'), source.join('\n'));
  const options = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2023', '--types', 'node'];
  await run(join(BIN, 'tsc'), ...options, '--typeRoots', `${ROOT}node_modules/@types`, 'typed.ts');
});
