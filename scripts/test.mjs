// npm test: installs what is missing, then has Nx run all targets; in CI (.ci/run) also the programs on the oldest Node, unit tests on Deno, the
// simulation, and one fault of each kind. npm run ok, test:floor, test:deno and test:slow run one part: `node scripts/test.mjs PART`.
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { bin, command, seconds } from './lib/command.mjs';
import { closingLine, countsIn, ONE_FAILED, ONE_PASSED, succeeded, sum } from './lib/counts.mjs';
import { ensureInstalled, withBundles } from './lib/ready.mjs';
import { ensureTools } from './lib/tools.mjs';
import { ROOT, readJson } from './lib/workspace.mjs';
import { fetchNode } from './node.mjs';

/** `first` targets are empty, and wait for the longest ones: Nx begins with tasks that others wait for, and then with those of packages that most need. */
const EITHER = ['test', 'lint', 'types', 'generated'];
const GATE = ['gate-first', ...EITHER, 'test-steps'];
/** In CI also, on Deno, packages that a tunnel's bytes pass through, and edges. Of the others, Deno runs the unit tests every night. */
const ON_DENO = process.env.CI ? ['tunnels-on-deno'] : [];
const ALL = ['planes-first', 'test-redis', ...EITHER, 'test-docs', 'boundaries', ...ON_DENO];
/** What runs in the program of others, with the `fetch` of their Node; and whether OpenSSL is laid out as we take it to be. */
const ON_FLOOR = 'libs/{client/src/undici,runtime/src/verification-bound}.test.ts';
/** Edges where runtimes have differed: what ends, resets, waits and moves much. */
const EDGES = 'test/src/edges/{closing,cuts,destinations,failures,pressure,resets}.test.ts';
/** What a file of tests names that are skipped unless slow tests run. Those of compat would take ten minutes more. */
const IS_SLOW = /unlessSlow|SLOW_TESTS|noHelm|noApiServer/;
const MINUTE = 60_000;
/** Go programs under test/compat that several tests need, and Kubernetes' types, which only slow tests need: they take ten minutes. */
const GO = ['peer', 'certificates', 'proxied'];
const TOOLS = ['redis', 'chromium', 'prometheus'];

/** Each part: what runs it, what must be there, and how long it may take. */
const PARTS = {
  // Whole planes beside unit tests, which wait more than they work.
  all: { argv: () => nx(2, ...ALL), tools: TOOLS, go: GO, minutes: 45 },
  // Behind all others: it counts what a dial costs.
  steps: { argv: () => nx(1, 'test-steps'), minutes: 5 },
  gate: { argv: () => nx(4, ...GATE), minutes: 45 },
  // One file at a time, beside whole planes.
  floor: { argv: () => node(1, ON_FLOOR, EDGES), env: onOldest, minutes: 20 },
  slow: {
    argv: () => node(1, ...slowTests()),
    env: () => ({ ISTHMUS_SLOW_TESTS: '1' }),
    ...{ tools: TOOLS, go: [...GO, 'manifests'], minutes: 45 },
  },
  deno: { argv: () => nx(2, 'test-deno'), tools: ['redis'], minutes: 20 },
  // On one processor, with what the tests leave of it.
  simulate: {
    argv: () => ['nice', '-n', '19', process.execPath, join(ROOT, 'scripts/simulate.mjs'), '--schedules', '100000'],
    minutes: 35,
  },
  // Alone: a plane that shares two processors with another load fails dials for want of them.
  chaos: {
    argv: () => [process.execPath, join(ROOT, 'test/src/chaos/main.ts'), '--short', '--rate', '50', '--each-kind'],
    ...{ tools: ['redis'], minutes: 25 },
  },
};
/** What passed, and the headings and sums around it. */
const SILENT = /^\s*[✔▶] |^ℹ |^\s*(\.\.\. )?ok \(|\.\.\.( ok \(|$)|^running \d+ tests? from /;

/** What failed, to be said again at the end: a log's beginning may be cut. */
const failed = [];
const FAILED_LINE = /^\s*✖ (?!failing tests:)|^test at | {2}\w*Error\b|FAILED/;
const MOST_FAILED_LINES = 40;

/**
 * Nx knows what a change can affect, and runs only that. One target has most whole planes, of four files at once; in CI, up to two files with planes run
 * beside it. With more, two processors are so busy that a program is silent for longer than its peers wait.
 */
function nx(parallel, ...targets) {
  const fresh = process.env.CI === 'true' ? ['--skipNxCache'] : [];
  const flags = [`--parallel=${parallel}`, '--outputStyle=static', '--nxBail=false', ...fresh];
  return [bin('nx'), 'run-many', ...flags, '-t', ...targets];
}

function node(concurrency, ...files) {
  return [process.execPath, '--test', `--test-concurrency=${concurrency}`, '--test-timeout=1200000', ...files];
}

/** Tests need a newer Node than the oldest that runs the programs: they have `using`. */
function onOldest() {
  return { ISTHMUS_NODE: fetchNode(`${readJson(join(ROOT, 'package.json')).engines.node.replace('>=', '')}.0`) };
}

function slowTests() {
  const exclude = ['**/node_modules', 'test/src/{compat,cluster}'];
  const files = globSync('{libs,test}/**/*.test.ts', { cwd: ROOT, exclude });
  return files.filter((file) => IS_SLOW.test(readFileSync(join(ROOT, file), 'utf8')));
}

/** Runs what a part is. @throws if what it needs cannot be had */
async function runOf({ argv, env = () => ({}), go = [], minutes }) {
  if (go.length > 0) {
    const { buildGoPrograms } = await import('../test/src/harness/go-program.ts');
    await buildGoPrograms(go, (line) => console.log(line));
  }
  const cache = join(ROOT, 'node_modules', '.cache', 'node');
  return await command(argv(), {
    show: (line) => !SILENT.test(stripVTControlCharacters(line)),
    timeout: minutes * MINUTE,
    env: { FORCE_COLOR: '0', NO_COLOR: '1', NODE_COMPILE_CACHE: cache, ...env() },
  });
}

/** Runs a part, and returns its counts. The run itself is one: it may fail without a failed test, and has if it counts nothing. */
async function run(name) {
  const start = performance.now();
  const { status, output } = await runOf(PARTS[name]).catch(({ message }) => ({ status: message, output: '' }));
  failed.push(...new Set(output.split('\n').filter((line) => FAILED_LINE.test(line))));
  const own = countsIn(output);
  const ended = status === 0 && own.passed + own.skipped > 0;
  if (!ended) failed.push(`${name} ended with ${closingLine(own)}, status ${status}`);
  const counts = own.failed > 0 ? own : sum([own, ended ? ONE_PASSED : ONE_FAILED]);
  console.log(`${name}: ${closingLine(counts)} in ${seconds(performance.now() - start)}`);
  return counts;
}

async function inTurn(names) {
  const results = [];
  for (const each of names) results.push(await run(each));
  return sum(results);
}

const [part] = process.argv.slice(2);
const lanes = [[part ?? 'all'], !part && process.env.CI ? ['floor', 'simulate'] : []];
const parts = lanes.flat();
const tools = parts.flatMap((each) => PARTS[each].tools ?? []);
let counts = ONE_FAILED;
// Whatever ends this process: the counts are its last line.
process.once('exit', () => {
  if (failed.length > 0) console.log(['\nFailed:', ...failed.slice(0, MOST_FAILED_LINES)].join('\n'));
  console.log(`\n${closingLine(counts)}`);
  process.exitCode = succeeded(counts) ? 0 : 1;
});
// Side by side: each waits for its server.
const missing = await ensureTools(tools, ensureInstalled());
const last = part ? [] : ['steps', ...(process.env.CI ? ['chaos'] : [])];
counts = await withBundles(async () => sum([...(await Promise.all(lanes.map(inTurn))), await inTurn(last)]));
for (const line of missing) console.log(`\n${line}`);
