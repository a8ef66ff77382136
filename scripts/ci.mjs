// Runs the README's commands as a newcomer would: the tests; then tunnels that are cut at random in a simulation; then the faults with short
// phases; and npm start in both forms, with the lines that it prints for pasting.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { command, seconds } from './lib/command.mjs';
import { closingLine, ONE_FAILED, ONE_PASSED, readClosingLine, succeeded, sum } from './lib/counts.mjs';
import { smoke } from './lib/smoke.mjs';
import { ROOT } from './lib/workspace.mjs';

const TESTS_TIMEOUT_MS = 60 * 60_000;
const CHAOS_TIMEOUT_MS = 25 * 60_000;
const SIMULATE_TIMEOUT_MS = 15 * 60_000;
const TEST = 'npm test';
/** Alone: a plane that shares two processors with another load fails dials for want of them. */
const CHAOS = 'npm run chaos -- --short --rate 50';
const SIMULATE = 'npm run simulate -- --schedules 100000';
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
  await counted(SIMULATE, SIMULATE_TIMEOUT_MS),
  await counted(CHAOS, CHAOS_TIMEOUT_MS),
];
for (const each of STARTS) results.push(await start(each));
const counts = sum(results);
console.log(`\n${closingLine(counts)}`);
process.exitCode = succeeded(counts) ? 0 : 1;
