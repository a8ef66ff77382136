import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, relative } from 'node:path';
import { after, test } from 'node:test';
import { jobsOf } from './test-jobs.mjs';
import { ALL_FILES_DONE, fileMark } from './test-reporter.mjs';
import { Schedule } from './test-schedule.mjs';
import { denoCounts, runTests } from './tests.mjs';
import { compiledTests, ROOT } from './workspace.mjs';

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

test('files that share a process are counted, and their failures named, as if they ran alone', async () => {
  const good = written('good.mjs', [
    `import { test } from 'node:test';`,
    `test('one', () => {}); test('two', () => {});`,
  ]);
  const bad = written('bad.mjs', [
    `import { describe, test } from 'node:test';`,
    `describe('group', () => { test('three', () => { throw new Error('because'); }); });`,
    `test('four', { skip: 'no Go' }, () => {});`,
  ]);
  const broken = written('broken.mjs', [`import 'isthmus-has-no-such-package';`]);
  const last = written('last.mjs', [
    `import { test } from 'node:test';`,
    `test('five', () => SOON);`,
    `const SOON = await Promise.resolve();`,
  ]);
  const { result, printed } = await run(good, bad, broken, last);
  assert.deepEqual(result.counts, { passed: 3, failed: 2, skipped: 1 });
  assert.match(printed, /FAILED group > three \(\S*bad\.mjs:2\)\n.*because/);
  assert.match(printed, /'\^group\$' --test-name-pattern='\^three\$' --test \S*bad\.mjs/);
  assert.match(printed, /FAILED its tests load \(\S*broken\.mjs:.*isthmus-has-no-such-package/s);
});

test('hooks of a file apply to its own tests, and end before the next file of the process', async () => {
  const steps = join(dir, 'hooks');
  writeFileSync(steps, '');
  const hooked = (name) => [
    `import { appendFileSync } from 'node:fs';`,
    `import { after, afterEach, before, beforeEach, test } from 'node:test';`,
    `const step = (what) => () => appendFileSync(${JSON.stringify(steps)}, what + '${name} ');`,
    `before(step('b')); after(step('a')); beforeEach(step('be')); afterEach(step('ae'));`,
    `test('one', step('1')); test('two', step('2'));`,
  ];
  const files = [written('x.mjs', hooked('x')), written('y.mjs', hooked('y'))];
  const { result } = await run(...files);
  assert.deepEqual(result.counts, { passed: 4, failed: 0, skipped: 0 });
  const inOrder = (name) => ['b', 'be', '1', 'ae', 'be', '2', 'ae', 'a'].map((step) => `${step}${name} `).join('');
  assert.equal(readFileSync(steps, 'utf8'), inOrder('x') + inOrder('y'));
});

test('a hook of a module that several files import applies to all of them', async () => {
  const steps = join(dir, 'imported-hooks');
  writeFileSync(steps, '');
  written('hooked.mjs', [
    `import { appendFileSync } from 'node:fs';`,
    `import { afterEach } from 'node:test';`,
    `export const step = (what) => () => appendFileSync(${JSON.stringify(steps)}, what);`,
    `afterEach(step('-'));`,
  ]);
  const file = (name, ...more) =>
    written(`${name}.mjs`, [
      `import { after, test } from 'node:test';`,
      `import { step } from './hooked.mjs';`,
      `test('${name}', step('${name}'));`,
      ...more,
    ]);
  const { result } = await run(file('x'), file('y'), file('z', `after(() => {});`));
  assert.deepEqual(result.counts, { passed: 3, failed: 0, skipped: 0 });
  // Also after what marks the files.
  assert.match(readFileSync(steps, 'utf8'), /^-*x-+y-+z-+$/);
});

test('a hook of a file that fails is a failure of that file, and the files behind it run', async () => {
  const fails = written('fails.mjs', [
    `import { after, test } from 'node:test';`,
    `after(() => { throw new Error('not cleaned up'); }); test('one', () => {});`,
  ]);
  const behind = written('behind.mjs', [`import { test } from 'node:test';`, `test('two', () => {});`]);
  const { result, printed } = await run(fails, behind);
  assert.deepEqual(result.counts, { passed: 2, failed: 1, skipped: 0 });
  assert.match(printed, /^FAILED its hooks \(\S*fails\.mjs:1\)\n.*not cleaned up/);
});

test('of a process that crashes, the file is named, and the files behind it run', async () => {
  const before = written('before.mjs', [`import { test } from 'node:test';`, `test('one', () => {});`]);
  const crash = written('crash.mjs', [`import { test } from 'node:test';`, `test('two', () => process.exit(3));`]);
  const behind = written('behind.mjs', [`import { test } from 'node:test';`, `test('three', () => {});`]);
  const { result, printed } = await run(before, crash, behind);
  assert.equal(result.counts.failed, 1);
  assert.match(printed, /FAILED \S*crash\.mjs: it exited with status 3\n {2}again: node --test \S*crash\.mjs$/m);
  assert.deepEqual(named(result.slowest), ['before.mjs', 'behind.mjs', 'crash.mjs']);
});

test('a process that ends too early has failed, whatever its status, and the files behind it run', async () => {
  const failing = written('failing.mjs', [
    `import { test } from 'node:test';`,
    `test('one', () => { throw new Error('because'); });`,
  ]);
  const behind = written('behind.mjs', [`import { test } from 'node:test';`, `test('two', () => {});`]);
  for (const status of [0, 1]) {
    const ends = [
      written('in-test.mjs', [`import { test } from 'node:test';`, `test('three', () => process.exit(${status}));`]),
      written('in-load.mjs', [`process.exit(${status});`]),
    ];
    const { result, printed } = await run(failing, ...ends, behind);
    const problem = status === 0 ? 'it ended before its tests were done' : 'it exited with status 1';
    for (const file of ends) assert.match(printed, new RegExp(`^FAILED \\S*${basename(file)}: ${problem}$`, 'm'));
    assert.deepEqual(result.counts, { passed: 1, failed: 3, skipped: 0 }, `status ${status}`);
    assert.deepEqual(named(result.slowest), ['behind.mjs', 'failing.mjs', 'in-load.mjs', 'in-test.mjs']);
  }
});

test('a file that runs alone has failed if it ends its process before its tests are done, whatever the status', async () => {
  for (const end of ['process.exit(0)', 'process.exit(1)', 'process.reallyExit(0)']) {
    const problem = end.endsWith('(0)') ? 'it ended before its tests were done' : 'it exited with status 1';
    const named = (name) => new RegExp(`^FAILED \\S*${name}: ${problem}$`, 'm');
    const inTest = written('in-test.mjs', [
      `import { test } from 'node:test';`,
      `test('one', () => {}); test('two', () => ${end}); test('three', () => {});`,
    ]);
    const inLoad = written('in-load.mjs', [`import { test } from 'node:test';`, `test('one', () => {});`, `${end};`]);
    for (const [name, file] of Object.entries({ 'in-test.mjs': inTest, 'in-load.mjs': inLoad })) {
      const { result, printed } = await run(file);
      assert.equal(result.counts.failed, 1, `${end} in ${name}`);
      assert.match(printed, named(name));
    }
  }
});

test('a file that is in no job has failed', async () => {
  const file = written('fine.mjs', [`import { test } from 'node:test';`, `test('one', () => {});`]);
  const printed = [];
  const { counts } = await runTests([file, 'lost.mjs'], {
    jobs: [{ files: [file], cost: 0 }],
    print: (text) => printed.push(text),
  });
  assert.deepEqual(counts, { passed: 1, failed: 1, skipped: 0 });
  assert.match(printed.join('\n'), /^FAILED lost\.mjs: it has no result$/m);
});

test('a file that does not load is named with the reason, and the files behind it run', async () => {
  const before = written('before.mjs', [`import { test } from 'node:test';`, `test('one', () => {});`]);
  const stuck = written('stuck.mjs', [`await new Promise(() => {});`]);
  const behind = written('behind.mjs', [`import { test } from 'node:test';`, `test('two', () => {});`]);
  const { result, printed } = await run(before, stuck, behind);
  // The file and its process.
  assert.deepEqual(result.counts, { passed: 2, failed: 2, skipped: 0 });
  assert.match(printed, /^FAILED its tests load \(\S*stuck\.mjs:\d+\)\n.*still pending/);
});

test('a test counts even if its name is that of a mark', async () => {
  const lines = [`import { test } from 'node:test';`];
  for (const name of [fileMark('x'), ALL_FILES_DONE]) {
    lines.push(`test('${name}', () => {});`, `test('${name}', () => { throw new Error('because'); });`);
  }
  const file = written('marks.mjs', lines);
  const other = written('other.mjs', [`import { test } from 'node:test';`, `test('one', () => {});`]);
  assert.deepEqual((await run(file)).result.counts, { passed: 2, failed: 2, skipped: 0 });
  assert.deepEqual((await run(file, other)).result.counts, { passed: 3, failed: 2, skipped: 0 });
});

test('of a process that hangs, the file is named, and the files behind it run', async () => {
  const hang = written('hang.mjs', [
    `import { test } from 'node:test';`,
    `import { setTimeout } from 'node:timers/promises';`,
    `test('one', () => setTimeout(2 ** 30));`,
  ]);
  const behind = written('behind.mjs', [`import { test } from 'node:test';`, `test('two', () => {});`]);
  const { result, printed } = await runWith({ timeoutMs: 15_000 }, hang, behind);
  assert.deepEqual(result.counts, { passed: 1, failed: 1, skipped: 0 });
  assert.match(printed, /FAILED \S*hang\.mjs: it still ran after 15\.0 s/);
});

test('a process that waits leaves room for another one, unless the processors are busy', async () => {
  const steps = join(dir, 'steps');
  const step = (what) => `appendFileSync(${JSON.stringify(steps)}, ${JSON.stringify(what)});`;
  const file = (name, body) =>
    written(name, [
      `import { appendFileSync, readFileSync } from 'node:fs';`,
      `import { test } from 'node:test';`,
      `import { setTimeout } from 'node:timers/promises';`,
      `test('one', async () => { ${body} });`,
    ]);
  // On a busy machine, the process that starts last may be the first whose test runs.
  const met = `while (readFileSync(${JSON.stringify(steps)}, 'utf8').length < 2) await setTimeout(10);`;
  const waiting = [file('a.mjs', `${step('a')} ${met}`), file('b.mjs', `${step('b')} ${met}`)];
  const busy = [file('c.mjs', `${step('c')} await setTimeout(2500); ${step('C')}`), file('d.mjs', step('d'))];
  for (const [files, share, expected] of [
    [waiting, 1, /^(ab|ba)$/],
    [busy, 0, /^cCd$/],
  ]) {
    writeFileSync(steps, '');
    const schedule = new Schedule({ atOnce: 1, idle: () => share });
    const options = {
      jobs: files.map((each) => ({ files: [each], cost: 0 })),
      schedule,
      timeoutMs: 120_000,
      print: () => {},
    };
    const { counts } = await runTests(files, options);
    assert.deepEqual(counts, { passed: 2, failed: 0, skipped: 0 });
    assert.match(readFileSync(steps, 'utf8'), expected);
  }
});

test('what a test causes after its end fails its process', async () => {
  const late = written('late.mjs', [
    `import { test } from 'node:test';`,
    `test('one', () => { setTimeout(() => Promise.reject(new Error('too late')), 10); });`,
  ]);
  const other = written('other.mjs', [`import { test } from 'node:test';`, `test('two', () => {});`]);
  const { result, printed } = await run(late, other);
  assert.equal(result.counts.failed, 1);
  assert.match(printed, /too late/);
});

test('unit tests share a process, if they leave the process as it was', () => {
  const all = ['flags', 'http2', 'runtime'].flatMap((name) => compiledTests(join(ROOT, 'libs', name)));
  const jobs = jobsOf(all).map(({ files }) => files);
  assert.deepEqual(jobs.flat().sort(), [...all].sort());
  const alone = jobs
    .filter((job) => job.length === 1)
    .flat()
    .map((file) => relative(ROOT, file));
  assert.ok(alone.includes('libs/runtime/dist/strangers.test.js'), 'it replaces the clock');
  assert.ok(jobs.some((job) => job.length > 10));
});

test('tests of whole planes share a process until it takes long', () => {
  const all = compiledTests(join(ROOT, 'test'));
  const jobs = jobsOf(all);
  assert.deepEqual(jobs.flatMap(({ files }) => files).sort(), [...all].sort());
  assert.ok(jobs.some(({ files }) => files.length > 3));
  for (const { files, cost } of jobs)
    assert.ok(files.length === 1 || cost <= 40, `${files.length} files take ${cost} s`);
  const longest = jobs.find(({ files }) => files.some((file) => file.endsWith('/tenants/renewal.test.js')));
  assert.equal(longest.files.length, 1, 'it waits until tokens have expired');
});

test('each test whose cost was measured exists', () => {
  const costs = JSON.parse(readFileSync(join(ROOT, 'scripts/lib/test-costs.json'), 'utf8'));
  assert.deepEqual(
    Object.keys(costs).filter((file) => !existsSync(join(ROOT, file))),
    [],
  );
});

test('a test that starts programs is expected to take longer than a unit test of the same length', () => {
  const [quick] = jobsOf([written('cost.mjs', [`import { test } from 'node:test';`])]);
  const [slow] = jobsOf([written('cost.mjs', [`test('x', { skip: redisMissing() });`])]);
  assert.ok(slow.cost > 10 * quick.cost);
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

function run(...files) {
  return runWith({}, ...files);
}

async function runWith(options, ...files) {
  const printed = [];
  const result = await runTests(files, { ...options, jobs: [{ files, cost: 0 }], print: (text) => printed.push(text) });
  return { result, printed: printed.join('\n') };
}

/** Returns the names of files in a list of the slowest. */
function named(slowest) {
  return slowest.map((each) => each.replace(/^.*\/| .*$/g, '')).sort();
}
