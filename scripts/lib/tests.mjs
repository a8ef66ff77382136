import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { seconds } from './command.mjs';
import { NOTHING, ONE_FAILED, sum } from './counts.mjs';
import { ROOT } from './workspace.mjs';

const REPORTER = fileURLToPath(new URL('test-reporter.mjs', import.meta.url));

/** A file that hangs fails after this long. */
const FILE_TIMEOUT_MS = 600_000;
/** The longest time without a line of output. */
const PROGRESS_MS = 10_000;
/** How many characters of a file's output are kept, for the report of its failure. */
const MOST_OUTPUT = 64 * 1024;

/**
 * Runs test files once, each in its own process: a test that fails beside others has failed. Prints each failure when it happens, with
 * the command that runs that test again. Prints at least every ten seconds what runs and how much is left.
 *
 * Resolves with `{ counts, skipped, slowest }`: the counts, the names of what was skipped and why, and the files that took longest.
 * @param atOnce how many files run at the same time
 */
export async function runTests(files, { atOnce = availableParallelism(), print = console.log } = {}) {
  const waiting = [...files];
  const running = new Map();
  const results = [];
  const progress = setInterval(() => {
    const since = (start) => seconds(performance.now() - start);
    const now = [...running].map(([file, start]) => `${nameOf(file)} (${since(start)})`).join(', ');
    print(`       ${results.length} of ${files.length} files done, ${countsOf(results).failed} failed; running ${now}`);
  }, PROGRESS_MS);
  const scratch = mkdtempSync(join(tmpdir(), 'isthmus-tests-'));
  const work = async (lane) => {
    for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
      running.set(file, performance.now());
      const result = await runFile(file, join(scratch, `${lane}.ndjson`));
      running.delete(file);
      results.push(result);
      for (const failure of result.failures) print(failure);
    }
  };
  try {
    await Promise.all(Array.from({ length: atOnce }, (_, lane) => work(lane)));
  } finally {
    clearInterval(progress);
    rmSync(scratch, { recursive: true, force: true });
  }
  const slowest = results.sort((a, b) => b.ms - a.ms).slice(0, 5);
  return {
    counts: countsOf(results),
    skipped: results.flatMap(({ skipped }) => skipped),
    slowest: slowest.map(({ file, ms }) => `${nameOf(file)} ${seconds(ms)}`),
  };
}

/** @param events the file that the reporter writes */
async function runFile(file, events) {
  const start = performance.now();
  rmSync(events, { force: true });
  const { problem, output } = await runProcess(file, events);
  const reports = existsSync(events) ? readFileSync(events, 'utf8').split('\n').filter(Boolean).map(JSON.parse) : [];
  const of = (outcome) => reports.filter((report) => report.outcome === outcome);
  // A test fails if its subtests fail; only the subtests say why.
  const failures = of('failed').filter(({ why }) => why !== '');
  // Exit status 1 without a failed test means that something threw outside of the tests.
  const broken = failures.length > 0 && problem === 'it exited with status 1' ? '' : problem;
  return {
    file,
    failures: [
      ...failures.map((failure) => failedTest(file, failure)),
      ...(broken ? [failedFile(file, broken)] : []),
      ...(output && (failures.length > 0 || broken) ? [indented(output)] : []),
    ],
    counts: {
      passed: of('passed').length,
      failed: of('failed').length + (broken ? 1 : 0),
      skipped: of('skipped').length,
    },
    skipped: of('skipped').map(({ name, why }) => (why ? `${name} (${why})` : name)),
    ms: performance.now() - start,
  };
}

/** Resolves with the last characters that the file printed, and with what went wrong, if anything did. */
function runProcess(file, events) {
  return new Promise((resolve) => {
    const options = [`--test-reporter=${REPORTER}`, `--test-reporter-destination=${events}`];
    // With the first set, the file would report to a test that runs this. Nx sets the second, and tests read what programs print.
    const { NODE_TEST_CONTEXT, FORCE_COLOR, ...env } = process.env;
    const child = spawn(process.execPath, [...options, file], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      child.kill('SIGKILL');
    }, FILE_TIMEOUT_MS);
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        output = (output + text).slice(-MOST_OUTPUT);
      });
    }
    // Not `close`: a program that the file left behind may keep its output open.
    child.once('exit', (status, signal) => {
      clearTimeout(timer);
      const ended = signal ? `it was ended by ${signal}` : status === 0 ? '' : `it exited with status ${status}`;
      setImmediate(resolve, { problem: late ? `it still ran after ${seconds(FILE_TIMEOUT_MS)}` : ended, output });
    });
  });
}

function failedTest(file, { name, line, why }) {
  const patterns = name.split(' > ').map((part) => `--test-name-pattern=${quoted(`^${escaped(part)}$`)}`);
  return [
    `FAILED ${name} (${nameOf(file)}:${line})`,
    indented(why),
    `  again: node ${patterns.join(' ')} --test ${nameOf(file)}`,
  ].join('\n');
}

function failedFile(file, problem) {
  return `FAILED ${nameOf(file)}: ${problem}\n  again: node --test ${nameOf(file)}`;
}

function escaped(text) {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function indented(text) {
  return text.trimEnd().replace(/^/gm, '    ');
}

function nameOf(file) {
  return relative(ROOT, resolve(file));
}

function countsOf(results) {
  return sum([NOTHING, ...results.map(({ counts }) => counts)]);
}

/**
 * Parses the counts in the last line of `deno test` without colours: `ok | 12 passed (3 steps) | 0 failed | 1 ignored (2s)`. Steps are
 * the subtests, which node:test counts as tests.
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
