// Runs the README's commands as a newcomer would: the tests; then what of them is slow, beside simulated tunnels that are cut at random; then
// the faults with short phases, a small fleet of simulated agents, a plane of 25 tenants, a Kubernetes cluster where one can be, the benchmark
// without its times, and npm start in both forms, with the lines that it prints for pasting.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { command, seconds } from './lib/command.mjs';
import { closingLine, ONE_FAILED, ONE_PASSED, readClosingLine, succeeded, sum } from './lib/counts.mjs';
import { smoke } from './lib/smoke.mjs';
import { ROOT } from './lib/workspace.mjs';

const TESTS_TIMEOUT_MS = 60 * 60_000;
const CHAOS_TIMEOUT_MS = 25 * 60_000;
const SLOW_TIMEOUT_MS = 35 * 60_000;
const SIMULATE_TIMEOUT_MS = 15 * 60_000;
const SCALE_TIMEOUT_MS = 10 * 60_000;
const CLUSTER_TIMEOUT_MS = 25 * 60_000;
const BENCH_TIMEOUT_MS = 10 * 60_000;
const TEST = 'npm test';
/** Side by side: each row keeps less than one processor busy, and short runs judge no times. */
const CHAOS = ['1/2', '2/2'].map((part) => `npm run chaos -- --short --rate 50 --part ${part}`);
/**
 * What the gate leaves out or runs small: every process rolled under load, hubs killed in turn, the memory after 3,000 dials, 1 GiB through
 * each way, 10,000 tunnels over one stream, three of the staged incidents, each program of the split demo killed, the console in more sizes,
 * the steps of the Containerfile, and the Helm chart.
 */
const SLOW = 'npm run test:slow';
const SIMULATE = 'npm run simulate -- --schedules 100000';
const SCALE = 'npm run scale -- --short';
const TENANTS = 'npm run scale -- --tenants 25 --short';
/** Not cold: Kubernetes takes 20 minutes to build. Without a build that was kept, a line says so. */
const CLUSTER = 'npm run cluster -- --short --if-possible';
const BENCH = 'npm run bench -- --short';
const STARTS = [
  { line: 'npm start', gateways: 1 },
  { line: 'npm start -- --split', gateways: 2 },
];

/** The README must name the commands that are tried here, each on its own line. */
function readmeCheck() {
  const lines = readFileSync(join(ROOT, 'README.md'), 'utf8').split('\n');
  const missing = [TEST, ...STARTS.map(({ line }) => line)].filter(
    (wanted) => !lines.some((line) => isCommand(line, wanted)),
  );
  if (missing.length > 0) console.log(`README.md does not name: ${missing.join(', ')}`);
  return missing.length > 0 ? ONE_FAILED : ONE_PASSED;
}

/** A command may be followed by a comment. */
function isCommand(line, wanted) {
  return line.replace(/\s+#.*$/, '').trim() === wanted;
}

/** Runs a command that ends with a closing line. */
async function counted(line, timeout) {
  const { status, output } = await command(line.split(' '), { show: true, timeout });
  const counts = readClosingLine(output) ?? ONE_FAILED;
  return status === 0 || counts.failed > 0 ? counts : ONE_FAILED;
}

async function start({ line, gateways }) {
  const begin = performance.now();
  const failures = await smoke(line.split(' '), gateways);
  for (const failure of failures) console.log(failure);
  console.log(`${failures.length > 0 ? 'FAILED' : 'ok    '} ${line} (${seconds(performance.now() - begin)})`);
  return failures.length > 0 ? ONE_FAILED : ONE_PASSED;
}

const results = [
  readmeCheck(),
  await counted(TEST, TESTS_TIMEOUT_MS),
  // Together, because they measure nothing, and simulated tunnels need one processor.
  ...(await Promise.all([counted(SLOW, SLOW_TIMEOUT_MS), counted(SIMULATE, SIMULATE_TIMEOUT_MS)])),
  ...(await Promise.all(CHAOS.map((part) => counted(part, CHAOS_TIMEOUT_MS)))),
  await counted(SCALE, SCALE_TIMEOUT_MS),
  await counted(TENANTS, SCALE_TIMEOUT_MS),
  await counted(CLUSTER, CLUSTER_TIMEOUT_MS),
  await counted(BENCH, BENCH_TIMEOUT_MS),
];
for (const each of STARTS) results.push(await start(each));
const counts = sum(results);
console.log(`\n${closingLine(counts)}`);
process.exitCode = succeeded(counts) ? 0 : 1;
