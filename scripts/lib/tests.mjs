import { globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fetchNode } from '../node.mjs';
import { bin, command } from './command.mjs';
import { denoCounts, nodeCounts, ONE_FAILED, ONE_PASSED, readClosingLine, sum } from './counts.mjs';
import { ROOT, readJson } from './workspace.mjs';

/** The targets, of nx.json and of the packages, that must pass before a change is merged. Of whole planes, `test-gate` tries each door. */
const GATE = ['test-gate', 'test', 'lint', 'types', 'generated'];
/** All targets. Those that take longest go first. */
const ALL = [
  ...['test-plane', 'test-tenants', 'test-compat', 'test-console', 'test-repository', 'test-hostile', 'test-edges'],
  ...GATE.filter((target) => target !== 'test-gate'),
  ...['test-docs', 'boundaries'],
];
/** Go programs under test/compat that several tests need. */
const GO = ['peer', 'certificates', 'proxied'];
/** Kubernetes' types alone take ten minutes of two processors. Only slow tests need them. */
const SLOW_GO = ['manifests'];
const TESTS_MS = 45 * 60_000;
const RUNTIME_MS = 20 * 60_000;
const SCHEDULES = '100000';
/** They take a minute of one processor. What runs beside them, and comes first, may take its own deadlines: the gate, the oldest Node, Deno. */
const SCHEDULES_MS = TESTS_MS + 3 * RUNTIME_MS;
/**
 * What runs side by side, each with two files at once: tests that wait leave the processors to others. With more, two processors are so busy
 * that a program is silent for longer than its peers wait.
 */
const PARALLEL = 2;
/** What runs in the program of others, with the `fetch` of their Node; and whether OpenSSL is laid out as we take it to be. */
const ON_FLOOR_ALSO = 'libs/{client/src/undici,runtime/src/verification-bound}.test.ts';
/** Edges where runtimes have differed: what ends, resets, waits and moves much. */
const ON_RUNTIMES = 'test/src/edges/{closing,cuts,destinations,failures,pressure,resets}.test.ts';
/** What a tunnel's bytes pass through. Of the other packages, Deno runs the unit tests every night. */
const ON_THE_WAY = 'libs/{transport,tunnel,wire}/src/**/*.test.ts';
/** What Deno 2.9 does otherwise: it resets no TLS connection and reads ahead (docs/RESUME.md, SECURITY.md). */
const NOT_ON_DENO = /\/edges\/(cuts|resets)\./;
/** What a file of tests names that are skipped unless slow tests run. */
const IS_SLOW = /unlessSlow|SLOW_TESTS|noHelm|noApiServer/;
/** What passed, and the headings and sums around it. */
const SILENT = /^\s*[✔▶] |^ℹ |^\s*(\.\.\. )?ok \(|\.\.\. ok \(|^running \d+ tests? from /;

/** Runs something whose tests and loads start the programs' bundles, made for it from the sources, as they are shipped. */
export async function withBundles(work) {
  // esbuild is there only after the installation.
  const { bundlePrograms } = await import('./bundle.mjs');
  const directory = mkdtempSync(join(tmpdir(), 'isthmus-programs-'));
  process.once('exit', () => rmSync(directory, { recursive: true, force: true }));
  await bundlePrograms(directory);
  process.env.ISTHMUS_PROGRAMS = directory;
  return work();
}

/** Runs what a change must pass before it is merged. */
export function gate() {
  return targets(GATE);
}

/** Runs the gate and every other test of whole planes. */
export async function all() {
  await buildGo(GO);
  return targets(ALL);
}

async function buildGo(names) {
  const { buildGoPrograms } = await import('../../test/src/harness/go-program.ts');
  await buildGoPrograms(names, (line) => console.log(line));
}

/**
 * Runs every target whose result may differ from its last run: Nx knows what a change can affect. Prints what did not pass, and resolves
 * with the sum of the counts. What prints no count counts as one.
 */
function targets(names) {
  const options = [
    `--parallel=${PARALLEL}`,
    '--outputStyle=static',
    '--nxBail=false',
    ...(process.env.CI === 'true' ? ['--skipNxCache'] : []),
  ];
  return counted([bin('nx'), 'run-many', '-t', ...names, ...options], nodeCounts, { timeout: TESTS_MS });
}

/** Runs at full size the tests that the gate leaves out or runs small, for lack of time. Those of compat would take ten minutes more. */
export async function testSlow() {
  const files = globSync('{libs,test}/**/*.test.ts', {
    cwd: ROOT,
    exclude: ['**/node_modules', 'test/src/{compat,cluster}'],
  });
  const slow = files.filter((file) => IS_SLOW.test(readFileSync(join(ROOT, file), 'utf8')));
  await buildGo([...GO, ...SLOW_GO]);
  const argv = [process.execPath, '--test', '--test-concurrency=1', '--test-timeout=1200000', ...slow];
  return counted(argv, nodeCounts, { timeout: TESTS_MS, env: { ISTHMUS_SLOW_TESTS: '1' } });
}

/** Runs the programs on the oldest Node that package.json allows. Tests need a newer one: they have `using`. */
export async function testOnFloor() {
  const node = await fetchNode(`${readJson(join(ROOT, 'package.json')).engines.node.replace('>=', '')}.0`);
  const argv = [
    process.execPath,
    '--test',
    '--test-concurrency=3',
    '--test-timeout=600000',
    ON_RUNTIMES,
    ON_FLOOR_ALSO,
  ];
  return counted(argv, nodeCounts, { timeout: RUNTIME_MS, env: { ISTHMUS_NODE: node } });
}

/** Runs the unit tests of all packages and some edges on Deno. */
export function testAllOnDeno() {
  return testOnDeno('{libs,apps}/*/src/**/*.test.ts');
}

/** Runs unit tests and some edges on Deno, a process for each package: Deno 2.9.5 was seen to crash after some hundred HTTP/2 sessions in one. */
export async function testOnDeno(files = ON_THE_WAY) {
  const edges = globSync(ON_RUNTIMES, { cwd: ROOT }).filter((file) => !NOT_ON_DENO.test(file));
  const units = globSync(files, { cwd: ROOT });
  const packages = Object.values(Object.groupBy(units, (file) => file.split('/').slice(0, 2).join('/')));
  // What takes longest first: the edges wait for programs, and of packages it is those with most tests.
  const groups = [edges, ...packages.sort((a, b) => b.length - a.length)];
  const results = [];
  const worker = async () => {
    for (let files = groups.shift(); files; files = groups.shift())
      results.push(
        await counted([bin('deno'), 'test', '--allow-all', '--no-check', '--quiet', ...files], denoCounts, {
          timeout: RUNTIME_MS,
        }),
      );
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  return sum(results);
}

/** Cuts simulated tunnels, on one processor and with what the tests leave of it. */
export function simulate() {
  const argv = ['nice', '-n', '19', process.execPath, join(ROOT, 'scripts', 'simulate.mjs'), '--schedules', SCHEDULES];
  return counted(argv, (output) => readClosingLine(output) ?? ONE_FAILED, { timeout: SCHEDULES_MS });
}

/** Runs tests, and returns their counts as `read` finds them in the output. A run that fails without a failed test is one. */
async function counted(argv, read, { timeout, env }) {
  const cache = join(ROOT, 'node_modules', '.cache', 'node');
  const own = { FORCE_COLOR: '0', NO_COLOR: '1', NODE_COMPILE_CACHE: cache, ...env };
  const show = (line) => !SILENT.test(line);
  const { status, output } = await command(argv, { show, timeout, env: own });
  const counts = read(output);
  if (counts.failed > 0) return counts;
  return sum([counts, status === 0 ? ONE_PASSED : ONE_FAILED]);
}
