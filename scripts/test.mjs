// npm test: installs what is missing, then runs all tests; in CI also the programs on the oldest Node, unit tests on Deno, and the simulation.
// npm run ok, test:floor, test:deno and test:slow run one of these: `node scripts/test.mjs PART`.
import { seconds } from './lib/command.mjs';
import { closingLine, succeeded, sum } from './lib/counts.mjs';
import { ensureInstalled } from './lib/ready.mjs';
import { all, gate, simulate, testAllOnDeno, testOnDeno, testOnFloor, testSlow, withBundles } from './lib/tests.mjs';
import { ensureTools } from './lib/tools.mjs';

const ALL_TOOLS = ['redis', 'chromium', 'prometheus'];
const PARTS = {
  ...{ all, gate, simulate, floor: testOnFloor, slow: testSlow },
  ...{ deno: testAllOnDeno, 'tunnels on deno': testOnDeno },
};
/** Without them, tests of a part are skipped. */
const TOOLS = { ...{ all: ALL_TOOLS, slow: ALL_TOOLS }, ...{ gate: ['redis'], deno: ['redis'] } };

const [part] = process.argv.slice(2);
await ensureInstalled();
const parts = part ? [part] : process.env.CI ? ['all', 'floor', 'tunnels on deno'] : ['all'];
const missing = await ensureTools(...parts.flatMap((each) => TOOLS[each] ?? []));
const beside = !part && process.env.CI ? ['simulate'] : [];

async function inTurn(names) {
  const results = [];
  for (const each of names) {
    const start = performance.now();
    const counts = await PARTS[each]();
    console.log(`${each}: ${closingLine(counts)} in ${seconds(performance.now() - start)}`);
    results.push(counts);
  }
  return sum(results);
}

const results = await withBundles(() => Promise.all([inTurn(parts), inTurn(beside)]));
for (const line of missing) console.log(`\n${line}`);
const counts = sum(results);
console.log(`\n${closingLine(counts)}`);
process.exitCode = succeeded(counts) ? 0 : 1;
