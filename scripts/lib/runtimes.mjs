import { relative } from 'node:path';
import { fetchNode } from '../node.mjs';
import { withBundles } from './bundles.mjs';
import { bin, command, seconds } from './command.mjs';
import { closingLine, denoCounts, ONE_FAILED, readClosingLines, sum } from './counts.mjs';
import { filesBelow, ROOT, readJson, workspacePackages } from './workspace.mjs';

const TIMEOUT_MS = 20 * 60_000;
const FILE_MS = 5 * 60_000;
/** How many processes run at once. */
const PROCESSES = 3;

/** All unit tests, and the tests of what callers meet, except the one that moves hundreds of megabytes. */
const OTHERS = 'test/src/edges';
const LARGE = /\/edges\/transfers\./;
/** What Deno 2.9 does otherwise: it resets no TLS connection, reads ahead, and resolves names by getaddrinfo alone (docs/RESUME.md, SECURITY.md). */
const NOT_ON_DENO = /\/edges\/(cuts|resets|names)\./;

/** The programs as they are shipped, on the oldest Node that package.json allows. Tests need a newer one: they have `using`. */
async function onFloor() {
  const node = await fetchNode(`${readJson(`${ROOT}/package.json`).engines.node.replace('>=', '')}.0`);
  const argv = [process.execPath, 'scripts/test-files.mjs', '--match=^test/src/edges/(?!transfers)', 'test'];
  const { output, status } = await withBundles(() =>
    command(argv, { timeout: TIMEOUT_MS, env: { ISTHMUS_NODE: node } }),
  );
  const [counts] = readClosingLines(output);
  return [{ output, counts: counts && (status === 0 || counts.failed > 0) ? counts : ONE_FAILED }];
}

/** Each file has its own process: Deno 2.9.5 was seen to crash after some hundred HTTP/2 sessions in one. */
async function onDeno() {
  const files = [...unitPackages(), OTHERS].flatMap((path) =>
    filesBelow(`${ROOT}/${path}`, (file) => file.endsWith('.test.ts')),
  );
  return inTurns(
    files.filter((file) => !LARGE.test(file) && !NOT_ON_DENO.test(file)),
    async (file) => {
      const argv = [bin('deno'), 'test', '--allow-all', '--no-check', relative(ROOT, file)];
      const { status, output } = await command(argv, { timeout: FILE_MS, env: { NO_COLOR: '1' } });
      const counts = denoCounts(output);
      return { output, counts: status === 0 || counts.failed > 0 ? counts : ONE_FAILED };
    },
  );
}

function unitPackages() {
  return workspacePackages()
    .map(({ path }) => path)
    .filter((path) => path !== 'test');
}

/** Works on all items, some at once, and resolves with their results. */
async function inTurns(items, work) {
  const left = [...items];
  const results = [];
  const worker = async () => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) results.push(await work(next));
  };
  await Promise.all(Array.from({ length: PROCESSES }, worker));
  return results;
}

const RUNTIMES = { floor: onFloor, deno: onDeno };

/** Runs the tests on another runtime, prints the output of what failed, and resolves with the sum of the counts. */
export async function testOn(name) {
  const start = performance.now();
  const results = await RUNTIMES[name]();
  for (const { output, counts } of results) if (counts.failed > 0) console.log(output.trimEnd());
  const counts = sum(results.map((each) => each.counts));
  console.log(
    `${counts.failed > 0 ? 'FAILED' : 'ok    '} tests on ${name}: ${closingLine(counts)} in ${seconds(performance.now() - start)}`,
  );
  return counts;
}
