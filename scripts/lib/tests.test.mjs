import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { denoCounts, runTests } from './tests.mjs';

const dir = mkdtempSync(join(tmpdir(), 'isthmus-runner-'));
after(() => rmSync(dir, { recursive: true, force: true }));

test('a failing test is run once, counted once, and printed with the command that runs it again', async () => {
  const ran = join(dir, 'ran');
  const file = written('fails.mjs', [
    `import { appendFileSync } from 'node:fs';`,
    `import { test } from 'node:test';`,
    `test('one (of two)', () => { appendFileSync(${JSON.stringify(ran)}, 'x'); throw new Error('because'); });`,
    `test('two', () => {});`,
    `test('three', { skip: 'no Redis' }, () => {});`,
  ]);
  const { result, printed } = await run(file);
  assert.deepEqual(result.counts, { passed: 1, failed: 1, skipped: 1 });
  assert.deepEqual(result.skipped, ['three (no Redis)']);
  assert.match(
    printed,
    /^FAILED one \(of two\) .*because.* {2}again: node --test-name-pattern='\^one \\\(of two\\\)\$'/s,
  );
  assert.equal(readFileSync(ran, 'utf8'), 'x');
});

test('a file that crashes outside of its tests has failed', async () => {
  const file = written('crashes.mjs', [
    `import { test } from 'node:test';`,
    `test('fine', () => {});`,
    `process.on('exit', () => process.kill(process.pid, 'SIGKILL'));`,
  ]);
  const { result, printed } = await run(file);
  assert.deepEqual(result.counts, { passed: 1, failed: 1, skipped: 0 });
  assert.match(printed, /crashes\.mjs: it was ended by SIGKILL/);
});

test('a suite counts only by its tests, and by a failed hook of its own', async () => {
  const file = written('suites.mjs', [
    `import { before, describe, it } from 'node:test';`,
    `describe('good', () => { it('one', () => {}); it('two', () => {}); });`,
    `describe('bad', () => { before(() => { throw new Error('no set-up'); }); it('three', () => {}); });`,
  ]);
  const { result, printed } = await run(file);
  assert.equal(result.counts.passed, 2);
  assert.ok(result.counts.failed >= 1, 'the failed hook counts');
  assert.match(printed, /no set-up/);
});

test('the counts of Deno are its tests plus their steps', () => {
  const line = 'ok | 12 passed (3 steps) | 0 failed | 1 ignored (2s)';
  assert.deepEqual(denoCounts(line), { passed: 15, failed: 0, skipped: 1 });
  assert.deepEqual(denoCounts('nothing'), { passed: 0, failed: 1, skipped: 0 });
});

function written(name, lines) {
  const file = join(dir, name);
  writeFileSync(file, lines.join('\n'));
  return file;
}

async function run(file) {
  const printed = [];
  const result = await runTests([file], { print: (text) => printed.push(text) });
  return { result, printed: printed.join('\n') };
}
