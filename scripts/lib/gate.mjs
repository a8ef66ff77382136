import { availableParallelism } from 'node:os';
import { relative } from 'node:path';
import { bin, command, seconds } from './command.mjs';
import { NOTHING, ONE_FAILED, ONE_PASSED, sum } from './counts.mjs';
import { build } from './ready.mjs';
import { runTests } from './tests.mjs';
import { compiledTests, filesBelow, ROOT, suites } from './workspace.mjs';

const node = (...args) => [process.execPath, ...args];

/** They wait for their programs for half of the time. More at once makes tests with deadlines compete for the processors. */
const INTEGRATION_AT_ONCE = Math.min(availableParallelism() + 1, 4);

/** What must hold before a change goes in, in this order. Each resolves with its counts, and output to show on failure. */
const STEPS = [
  { name: 'types', run: () => check(build()), needed: true },
  { name: 'format and lint', run: () => check(command([bin('biome'), 'ci', '--error-on-warnings', '.'])) },
  { name: 'package boundaries', run: () => check(command(node('scripts/boundaries.mjs'))) },
  { name: 'generated code and pages', run: () => check(command(node('scripts/generate.mjs', '--check'))) },
  { name: 'unit tests', run: () => test([...scriptTests(), ...testsOf(suites().unit)]) },
  { name: 'integration tests', run: () => test(testsOf(suites().integration), { atOnce: INTEGRATION_AT_ONCE }) },
];

/** Runs every step, prints a line for each, and resolves with the sum of the counts; a check counts as one. */
export async function gate() {
  const results = [];
  for (const { name, run, needed } of STEPS) {
    const start = performance.now();
    const result = await run();
    report(name, result, performance.now() - start);
    results.push(result);
    // Without a build the tests would run something else than these sources.
    if (needed && result.counts.failed > 0) break;
  }
  const skipped = results.flatMap((result) => result.skipped ?? []);
  if (skipped.length > 0) console.log(`\nskipped:\n  ${skipped.join('\n  ')}`);
  return sum([NOTHING, ...results.map((result) => result.counts)]);
}

function report(name, { counts, output, skipped }, ms) {
  const failed = counts.failed > 0;
  if (failed && output) console.log(output.trimEnd());
  const tests = skipped ? `, ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped` : '';
  console.log(`${failed ? 'FAILED' : 'ok    '} ${name} (${seconds(ms)}${tests})`);
}

async function check(running) {
  const { status, output } = await running;
  return { counts: status === 0 ? ONE_PASSED : ONE_FAILED, output };
}

async function test(files, options) {
  const result = await runTests(files, options);
  console.log(`       slowest: ${result.slowest.join(', ')}`);
  const ran = result.counts.passed + result.counts.failed > 0;
  return ran ? result : { ...result, counts: ONE_FAILED, output: 'no test ran' };
}

function testsOf(directories) {
  return directories.flatMap(compiledTests).map((path) => relative(ROOT, path));
}

function scriptTests() {
  return filesBelow(`${ROOT}/scripts`, (path) => path.endsWith('.test.mjs')).map((path) => relative(ROOT, path));
}
