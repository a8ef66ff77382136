import { relative } from 'node:path';
import { bin, command, npm, seconds } from './command.mjs';
import { ONE_FAILED, readClosingLine } from './counts.mjs';
import { denoCounts } from './tests.mjs';
import { ROOT, suites, testSources } from './workspace.mjs';

const TIMEOUT_MS = 600_000;
/** Several test files at once, as on Node; integration tests start programs that need processors of their own. */
const DENO_JOBS = '2';

function directories() {
  const { unit, integration } = suites();
  return [...unit, ...integration].map((dir) => relative(ROOT, dir));
}

/**
 * `node` the npm package holds any release of Node. It must not become a dependency: node_modules/.bin/node would be
 * found before the installed one.
 */
async function onNodeLatest(show) {
  const newest = npm('exec', '--yes', '--package=node@latest', '--');
  const { output } = await command([...newest, 'node', 'scripts/test-files.mjs', ...directories()], {
    show,
    timeout: TIMEOUT_MS,
  });
  return { counts: readClosingLine(output) ?? ONE_FAILED, output };
}

/** The sources as they are; what tsc says about them, the gate has said. */
async function onDeno(show) {
  const files = directories().flatMap((dir) => testSources(dir));
  const argv = [bin('deno'), 'test', '--allow-all', '--no-check', '--parallel', ...files];
  const { status, output } = await command(argv, { show, timeout: TIMEOUT_MS, env: { NO_COLOR: '1', DENO_JOBS } });
  const counts = denoCounts(output);
  return { counts: status === 0 || counts.failed > 0 ? counts : ONE_FAILED, output };
}

const RUNTIMES = { 'node-latest': onNodeLatest, deno: onDeno };

export const RUNTIME_NAMES = Object.keys(RUNTIMES);

/** Runs the unit and integration tests on another runtime than this one; prints one line, and the report if they fail. */
export async function testOn(name, { show = false } = {}) {
  const start = performance.now();
  const { counts, output } = await RUNTIMES[name](show);
  const failed = counts.failed > 0 || counts.passed === 0;
  if (failed && !show) console.log(output.trimEnd());
  console.log(`${failed ? 'FAILED' : 'ok    '} tests on ${name} (${seconds(performance.now() - start)})`);
  return failed && counts.failed === 0 ? ONE_FAILED : counts;
}
