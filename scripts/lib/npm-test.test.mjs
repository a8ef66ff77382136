import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { inScratch, ROOT } from './workspace.mjs';

const LOCK = createHash('sha256')
  .update(readFileSync(join(ROOT, 'package-lock.json')))
  .digest('hex');
const INSTALLED = { 'node_modules/.cache/installed-everything': LOCK };
const BUNDLED = { ...INSTALLED, 'scripts/lib/bundle.mjs': 'export async function bundlePrograms() {}' };
const BROKEN = "throw new Error('this is broken');";

/** Runs a part of npm test on a machine with nothing but Node, and an npm that fails. @param files what is there, or there instead */
function npmTest(part, files) {
  return inScratch((root) => {
    for (const each of ['package.json', 'package-lock.json', '.node-version', 'scripts'])
      cpSync(join(ROOT, each), join(root, each), { recursive: true });
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(dirname(join(root, name)), { recursive: true });
      writeFileSync(join(root, name), text);
    }
    mkdirSync(join(root, 'bin'));
    symlinkSync('/bin/false', join(root, 'bin/npm'));
    const { npm_execpath: _npm, ...env } = { ...process.env, PATH: join(root, 'bin') };
    const main = join(root, 'scripts/test.mjs');
    const { status, stdout, stderr } = spawnSync(process.execPath, [main, part], { env, encoding: 'utf8' });
    return { status, last: stdout.split('\n').at(-2), said: stdout + stderr };
  });
}

describe('npm test ends with its counts and status 1', () => {
  for (const [what, part, files, reason] of [
    ['npm installs nothing', 'floor', {}, /npm ci failed with status 1/],
    ['the programs cannot be bundled', 'floor', { ...INSTALLED, 'scripts/lib/bundle.mjs': BROKEN }, /this is broken/],
    ['npm has no oldest Node', 'floor', BUNDLED, /npm has no node-\S+@22\.18\.0/],
    [
      'a Go program cannot be built',
      'slow',
      { ...BUNDLED, 'test/src/harness/go-program.ts': `export async function buildGoPrograms() { ${BROKEN} }` },
      /this is broken/,
    ],
    ['a part counts nothing', 'chaos', { ...BUNDLED, 'test/src/chaos/main.ts': '' }, /chaos: 0 passed, 1 failed/],
  ])
    it(`if ${what}`, async () => {
      const { status, last, said } = await npmTest(part, files);
      assert.deepEqual([status, last], [1, '0 passed, 1 failed'], said);
      assert.match(said, reason);
    });
});
