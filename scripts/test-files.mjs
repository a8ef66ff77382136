// Runs the tests of packages with `node --test`, prints what failed, and closes with the counts:
//   node scripts/test-files.mjs [--together] [--match=PATTERN] DIRECTORY...
// With --together, all files share one process: starting Node and loading a package costs more than the tests of most files.
import { join, relative, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { command, seconds } from './lib/command.mjs';
import { closingLine, nodeCounts, ONE_FAILED, succeeded, sum } from './lib/counts.mjs';
import { filesBelow, ROOT } from './lib/workspace.mjs';

/** What hangs fails after this long. */
const TEST_MS = process.env.ISTHMUS_SLOW_TESTS ? 1_200_000 : 600_000;
const ALL_MS = 40 * 60_000;
/** Tests that start programs wait more than they compute. */
const PROCESSES = process.env.ISTHMUS_SLOW_TESTS ? 1 : 2;

const { values, positionals } = parseArgs({
  options: { match: { type: 'string', default: '' }, together: { type: 'boolean' } },
  allowPositionals: true,
});
if (positionals.length === 0) {
  console.error('test-files.mjs: name the directories of the packages to test');
  process.exit(2);
}
const start = performance.now();
const files = positionals
  .flatMap((directory) => filesBelow(resolve(directory), (path) => /\.test\.m?[jt]s$/.test(path)))
  .map((file) => relative(ROOT, file))
  .filter((file) => new RegExp(values.match).test(file));
if (files.length > 0) {
  const flags = values.together ? ['--test-isolation=none'] : [`--test-concurrency=${PROCESSES}`];
  const argv = [process.execPath, '--test', '--test-reporter=spec', `--test-timeout=${TEST_MS}`, ...flags, ...files];
  const env = { FORCE_COLOR: '0', NODE_COMPILE_CACHE: join(ROOT, 'node_modules', '.cache', 'node') };
  const { status, output } = await command(argv, { timeout: ALL_MS, env });
  const found = nodeCounts(output);
  const counts = status === 0 || found.failed > 0 ? found : sum([found, ONE_FAILED]);
  if (!succeeded(counts)) {
    console.log(failures(output));
    process.exitCode = 1;
  }
  for (const [, name, why] of output.matchAll(/^\s*﹣ (.*?) \([\d.]+ms\) # (.*)$/gm))
    console.log(`skipped: ${name} (${why})`);
  console.log(`${positionals.join(' ')}: ${files.length} files, ${seconds(performance.now() - start)}`);
  console.log(`\n${closingLine(counts)}`);
}

/** node:test repeats at the end what failed. Without that, the process ended early, and all that it printed may say why. */
function failures(output) {
  const at = output.indexOf('✖ failing tests:');
  return at < 0 ? output : output.slice(at);
}
