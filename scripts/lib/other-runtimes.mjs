import { join, relative } from 'node:path';
import { bin, command, npm, seconds } from './command.mjs';
import { ONE_FAILED, readClosingLine, sum } from './counts.mjs';
import { jobsOf } from './test-jobs.mjs';
import { Schedule } from './test-schedule.mjs';
import { sharingTurns } from './test-turns.mjs';
import { denoCounts } from './tests.mjs';
import { ROOT, suites, testSources } from './workspace.mjs';

const TIMEOUT_MS = 1_200_000;
const FILE_TIMEOUT_MS = 300_000;
/** A crash of the runtime: seen with Deno 2.9.5 after some hundred HTTP/2 sessions in one process. */
const CRASHED = /was ended by SIG(SEGV|ABRT|ILL|BUS|TRAP)\s*$/;
/** V8 also ends a process by such a signal if its script runs out of memory, which is our own defect. */
const OUT_OF_MEMORY = /out of memory/i;

/** A failed test's line. After a crash there is no closing line to count by. */
const TEST_FAILED = /\.\.\. FAILED\b/;

function directories() {
  const { unit, integration } = suites();
  return [...unit, ...integration].map((dir) => relative(ROOT, dir));
}

/**
 * Uses the npm package `node`, which holds any release of Node. It must not become a dependency: node_modules/.bin/node would be
 * found before the installed one.
 */
async function onNodeLatest({ show, match, env }) {
  const newest = npm('exec', '--yes', '--package=node@latest', '--');
  const files = ['node', 'scripts/test-files.mjs', `--match=${match}`, ...directories()];
  const { output } = await command([...newest, ...files], { show, timeout: TIMEOUT_MS, env });
  return { counts: readClosingLine(output) ?? ONE_FAILED, output };
}

/** Runs the sources as they are: the gate has type-checked them already. Each file runs in its own process. */
async function onDeno({ show, match, schedule }) {
  const files = directories()
    .flatMap((dir) => testSources(dir))
    .filter((file) => new RegExp(match).test(file));
  const run = async (file) => {
    const [{ cost }] = jobsOf([join(ROOT, file)]);
    const end = await schedule.turn({ name: `${file} on deno`, files: 1, cost });
    const result = await denoFile(file, show);
    end();
    return result;
  };
  const results = await Promise.all(files.map(run));
  const failures = results.filter(({ counts }) => counts.failed > 0);
  return { counts: sum(results.map(({ counts }) => counts)), output: failures.map(({ output }) => output).join('\n') };
}

function denoFile(file, show) {
  const argv = [bin('deno'), 'test', '--allow-all', '--no-check', file];
  return unlessCrashed(file, () => command(argv, { show, timeout: FILE_TIMEOUT_MS, env: { NO_COLOR: '1' } }));
}

/** Runs a file's tests. Runs them once more only if the runtime itself crashed and no test had failed: a failed test is a failure. */
export async function unlessCrashed(file, run) {
  let result = await run();
  if (result.status !== 0 && isCrash(result.output)) {
    console.log(`deno itself crashed in ${file}: running it once more`);
    result = await run();
  }
  const counts = denoCounts(result.output);
  return { counts: result.status === 0 || counts.failed > 0 ? counts : ONE_FAILED, output: result.output };
}

function isCrash(output) {
  return CRASHED.test(output) && !OUT_OF_MEMORY.test(output) && !TEST_FAILED.test(output);
}

/**
 * What continuous integration runs on other runtimes, by the path of a source or of its compiled test: all unit tests and the tests of what
 * callers meet, except the one that moves hundreds of megabytes. `npm run test:deno` and `test:node-latest` run everything.
 */
export const IN_CI = '^(libs|apps)/|^test/(src|dist)/edges/(?!transfers)';

const RUNTIMES = { 'node-latest': onNodeLatest, deno: onDeno };

export const RUNTIME_NAMES = Object.keys(RUNTIMES);

/**
 * Runs the unit and integration tests, or only those whose path matches, on other runtimes. Prints one line for each, and the report if tests
 * failed. Resolves with the sum of the counts.
 */
export async function testOn(names, options = {}) {
  const schedule = new Schedule();
  return sharingTurns(async (env) => {
    return sum(
      await Promise.all(names.map((name) => testOnOne(name, { show: false, match: '', ...options, schedule, env }))),
    );
  }, schedule);
}

async function testOnOne(name, options) {
  const start = performance.now();
  const { counts, output } = await RUNTIMES[name](options);
  const failed = counts.failed > 0 || counts.passed === 0;
  if (failed && !options.show) console.log(output.trimEnd());
  console.log(`${failed ? 'FAILED' : 'ok    '} tests on ${name} (${seconds(performance.now() - start)})`);
  return failed && counts.failed === 0 ? ONE_FAILED : counts;
}
