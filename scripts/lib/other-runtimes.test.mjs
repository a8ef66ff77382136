import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { test } from 'node:test';
import { IN_CI, RUNTIME_NAMES, unlessCrashed } from './other-runtimes.mjs';
import { ROOT, suites, testSources } from './workspace.mjs';

const PASSED = { status: 0, output: 'ok | 2 passed | 0 failed (1s)' };
const CRASHED = { status: 1, output: 'one ... ok (1ms)\ndeno test x was ended by SIGSEGV' };

/** Makes runs that end like this, one after the other. @returns how many were made, and the counts of the last */
async function runs(...results) {
  let made = 0;
  const { counts } = await unlessCrashed('x.test.ts', async () => results[made++]);
  return [made, counts.passed, counts.failed];
}

test('a file whose test failed is not run again on Deno', async () => {
  const failed = { status: 1, output: 'one ... FAILED (1ms)\nFAILED | 1 passed | 1 failed (1s)' };
  assert.deepEqual(await runs(failed, PASSED), [1, 1, 1]);
});

test('a file that passes is run once', async () => {
  assert.deepEqual(await runs(PASSED, PASSED), [1, 2, 0]);
});

test('a file in which the runtime crashed is run once more, and not a third time', async () => {
  assert.deepEqual(await runs(CRASHED, PASSED), [2, 2, 0]);
  assert.deepEqual((await runs(CRASHED, CRASHED, PASSED)).slice(0, 1), [2]);
  assert.equal((await runs(CRASHED, CRASHED))[2], 1);
});

test('a crash after a failed test does not hide it', async () => {
  const both = { ...CRASHED, output: `two ... FAILED (1ms)\n${CRASHED.output}` };
  const [made, , failed] = await runs(both, PASSED);
  assert.deepEqual([made, failed], [1, 1]);
});

test('a file that ran out of memory is not run again', async () => {
  for (const signal of ['SIGABRT', 'SIGTRAP']) {
    const output = `# Fatal JavaScript out of memory: Reached heap limit\ndeno test x was ended by ${signal}`;
    const [made, , failed] = await runs({ status: 1, output }, PASSED);
    assert.deepEqual([made, failed], [1, 1], signal);
  }
});

test('a file that fails outside of its tests or runs into its deadline is not run again', async () => {
  for (const output of ['error: Module not found', 'deno test x was ended by SIGKILL']) {
    const [made, , failed] = await runs({ status: 1, output }, PASSED);
    assert.deepEqual([made, failed], [1, 1], output);
  }
});

test('CONTRIBUTING says which tests continuous integration runs on which runtime', () => {
  const text = readFileSync(join(ROOT, 'CONTRIBUTING.md'), 'utf8');
  const table = /^\| tests \| Node 20 \|.*\n\|[- |]+\n((?:\|.*\n)+)/m.exec(text)?.[1] ?? '';
  const rows = table.split('\n').filter(Boolean);
  assert.equal(rows[0].split('|').length - 4, RUNTIME_NAMES.length);
  const said = rows.flatMap((row) => {
    const [, tests, gate, ...others] = row.split('|').map((cell) => cell.trim());
    assert.equal(gate, 'gate');
    return [...tests.matchAll(/`(.+?)`/g)].map(([, path]) => ({ path, others: others.slice(0, RUNTIME_NAMES.length) }));
  });
  const { unit, integration } = suites();
  for (const source of [...unit, ...integration].flatMap(testSources).map((file) => relative(ROOT, file))) {
    const [row] = said.filter(({ path }) => source.startsWith(path)).sort((a, b) => b.path.length - a.path.length);
    const compiled = source.replace('/src/', '/dist/').replace(/\.ts$/, '.js');
    for (const path of [source, compiled]) {
      const where = new RegExp(IN_CI).test(path) ? 'CI' : 'by hand';
      assert.deepEqual(row?.others, [where, where], path);
    }
  }
});
