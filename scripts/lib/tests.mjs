import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { seconds } from './command.mjs';
import { NOTHING, ONE_FAILED, sum } from './counts.mjs';
import { jobsOf } from './test-jobs.mjs';
import { TestRun } from './test-run.mjs';
import { Schedule } from './test-schedule.mjs';
import { sharedSchedule } from './test-turns.mjs';
import { ROOT } from './workspace.mjs';

/** A process that hangs fails after this long. Slow ones first build Helm on a clean machine, two of them side by side. */
const TIMEOUT_MS = process.env.ISTHMUS_SLOW_TESTS ? 1_200_000 : 600_000;
/**
 * Runs test files once: a test that fails beside others has failed. Prints each failure when it happens, with the command that runs that
 * test again.
 *
 * Resolves with `{ counts, skipped, slowest, times }`: the counts, the names of what was skipped and why, the files that took longest, and
 * how long each took, in milliseconds.
 * @param jobs the files of each process; of one that ends too early, the files that it did not reach run in another one
 * @param schedule says when each process may start. Default: the one that is shared with other commands, or its own
 */
export async function runTests(
  files,
  {
    jobs = jobsOf(files),
    schedule = sharedSchedule() ?? new Schedule(),
    timeoutMs = TIMEOUT_MS,
    print = console.log,
  } = {},
) {
  const results = [];
  const scratch = mkdtempSync(join(tmpdir(), 'isthmus-tests-'));
  let begun = 0;
  const work = async (job) => {
    const end = await schedule.turn(asked(job));
    const run = new TestRun(job.files, join(scratch, `${begun++}`));
    const { done, left } = resultsOf(job.files, run, await run.result(timeoutMs));
    end();
    results.push(...done);
    for (const failure of done.flatMap(({ failures }) => failures)) print(failure);
    if (left.length > 0) await work({ ...job, files: left });
  };
  try {
    await Promise.all(jobs.map(work));
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
  // Nothing may be lost silently, whatever a process did.
  for (const file of files.filter((file) => !results.some((result) => result.file === file))) {
    const lost = { ...resultOf({ file, reports: [], ms: 0 }), counts: ONE_FAILED };
    print(`FAILED ${nameOf(file)}: it has no result`);
    results.push(lost);
  }
  const slowest = results.sort((a, b) => b.ms - a.ms).slice(0, 5);
  return {
    counts: countsOf(results),
    skipped: results.flatMap(({ skipped }) => skipped),
    slowest: slowest.map(({ file, ms }) => `${nameOf(file)} ${seconds(ms)}`),
    times: new Map(results.map(({ file, ms }) => [file, ms])),
  };
}

/** Describes a job to the schedule. */
function asked({ files, cost }) {
  const more = files.length > 1 ? ` and ${files.length - 1} more` : '';
  return { name: `${nameOf(files[0])}${more}`, files: files.length, cost };
}

/** Returns the result of each file that ran, and the files that are still to run. */
function resultsOf(job, { at }, { parts, problem, errors, output }) {
  const done = parts.map(resultOf);
  // If all files are done, any of them may have caused the problem.
  const blamed = at < job.length ? [job[at]] : job;
  if (problem) {
    const found = done.find(({ file }) => file === blamed[0]);
    const failed = found ?? resultOf({ file: blamed[0], reports: [], ms: 0 });
    if (!found) done.push(failed);
    failed.counts = sum([failed.counts, ONE_FAILED]);
    failed.failures.push(processFailure(blamed, [problem, ...errors].join('\n')));
  }
  if (output && done.some(({ counts }) => counts.failed > 0)) done.at(-1).failures.push(indented(output));
  // Of a process that ended too early, the reports of a file that it did reach may be lost too.
  return { done, left: problem ? job.filter((file) => !done.some((part) => part.file === file)) : [] };
}

function resultOf({ file, reports, ms }) {
  const of = (outcome) => reports.filter((report) => report.outcome === outcome);
  // A test fails if its subtests fail; only the subtests say why.
  const failures = of('failed').filter(({ why }) => why !== '');
  return {
    file,
    failures: failures.map((failure) => failedTest(file, failure)),
    counts: { passed: of('passed').length, failed: of('failed').length, skipped: of('skipped').length },
    skipped: of('skipped').map(({ name, why }) => (why ? `${name} (${why})` : name)),
    ms,
  };
}

function processFailure(files, problem) {
  const names = files.map(nameOf);
  const who = names.length === 1 ? names[0] : `${names[0]} or another file of its process`;
  return `FAILED ${who}: ${problem}\n  again: node --test ${names.join(' ')}`;
}

function failedTest(file, { name, line, why }) {
  const patterns = name.split(' > ').map((part) => `--test-name-pattern=${quoted(`^${escaped(part)}$`)}`);
  return [
    `FAILED ${name} (${nameOf(file)}:${line})`,
    indented(why),
    `  again: node ${patterns.join(' ')} --test ${nameOf(file)}`,
  ].join('\n');
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
