import { availableParallelism } from 'node:os';
import { resolve } from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { NOTHING, ONE_FAILED, sum } from './counts.mjs';

/** One file's tests; a file that hangs fails then. */
const FILE_TIMEOUT_MS = 300_000;
/** More at once only makes tests with deadlines compete for the processors. */
const MOST_AT_ONCE = 4;

/**
 * Runs test files, each in a process of its own, and resolves with their counts, what was skipped and why, and the
 * report. `show` writes the report as it comes.
 *
 * Files that fail beside others are run once more, alone: what passes then depends on how busy the machine is, which is a fault of
 * the test and is said so, but none of the change under test.
 */
export async function runTests(files, { show = false } = {}) {
  const atOnce = Math.min(availableParallelism(), MOST_AT_ONCE);
  const first = await runOnce(files, atOnce, show);
  const failed = files.filter((file) => first.byFile.get(resolve(file))?.failed > 0);
  if (failed.length === 0 || atOnce === 1) return total(first);
  const second = await runOnce(failed, 1, show);
  for (const file of failed) {
    if (second.byFile.get(resolve(file))?.failed === 0) console.log(`${file} failed beside others, and passed alone`);
  }
  return total({
    byFile: new Map([...first.byFile, ...second.byFile]),
    skipped: first.skipped,
    output: first.output + second.output,
  });
}

async function runOnce(files, concurrency, show) {
  const byFile = new Map();
  const skipped = [];
  let output = '';
  if (files.length === 0) return { byFile, skipped, output };
  const events = run({ files: files.map((file) => resolve(file)), concurrency, timeout: FILE_TIMEOUT_MS });
  const count = (outcome, event) => {
    const because = event.skip ?? event.todo;
    if (because !== undefined) skipped.push(because ? `${event.name} (${because})` : event.name);
    const counts = byFile.get(event.file) ?? { ...NOTHING };
    counts[because === undefined ? outcome : 'skipped']++;
    byFile.set(event.file, counts);
  };
  events.on('test:pass', (event) => isSuite(event) || count('passed', event));
  // A suite fails with its tests, which are counted already, or by a hook of its own.
  events.on('test:fail', (event) => (isSuite(event) && failure(event) === 'subtestsFailed') || count('failed', event));
  for await (const text of events.compose(new spec())) {
    output += text;
    if (show) process.stdout.write(text);
  }
  return { byFile, skipped, output };
}

function total({ byFile, skipped, output }) {
  return { counts: sum([...byFile.values()]), skipped, output };
}

function isSuite({ details }) {
  return details.type === 'suite';
}

function failure({ details }) {
  return details.error?.failureType;
}

/**
 * The counts in the last line of `deno test` without colours: `ok | 12 passed (3 steps) | 0 failed | 1 ignored (2s)`. Steps are the
 * subtests, which node:test counts as tests.
 */
export function denoCounts(output) {
  const line = output.match(/^(?:ok|FAILED) \| .*$/gm)?.at(-1);
  if (line === undefined) return ONE_FAILED;
  const number = (pattern) => Number(line.match(pattern)?.[1] ?? 0);
  return sum([
    { passed: number(/(\d+) passed/), failed: number(/(\d+) failed/), skipped: number(/(\d+) ignored/) },
    { passed: number(/passed \((\d+) steps?/), failed: number(/failed \((\d+) steps?/), skipped: 0 },
  ]);
}
