import { existsSync, readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ROOT, readJson } from './workspace.mjs';

/** How many seconds files took: those that took long. `node scripts/test-costs.mjs` measures them again. */
const MEASURED = readJson(fileURLToPath(new URL('test-costs.json', import.meta.url)));

/** Tests of whole planes, and tests with a Redis server of their own. */
const WITH_PROGRAMS = { path: /^test\//, text: /\bredisMissing\b/ };

/** What a character of a file that was not measured costs, in seconds: a guess. */
const PER_CHARACTER = { plain: 0.00001, withPrograms: 0.001 };

/**
 * How many files share a process. Starting Node and loading a package costs more than the tests of a typical file. More files in a
 * process gain little, and leave the other processors idle.
 */
const MOST_TOGETHER = 24;
/** The same for tests that start programs. At full size they take minutes each. */
const MOST_WITH_PROGRAMS = process.env.ISTHMUS_SLOW_TESTS ? 1 : 12;
/** Files share a process until it takes this long, in seconds. The last processes of a gate should not be long ones. */
const LONG = 40;

/** What a file does to its whole process. The heap, the loaded modules and unhandled rejections are those of all files. */
const OWN_PROCESS = [
  /\bmemoryUsage\b|\bnode:v8\b|\bcreateRequire\b/,
  /\bprocess\.(on|once|exit|chdir)\(/,
  // The clock and the timers are also those of what runs the tests.
  /\bmethod\((globalThis|performance|process|Date)\b/,
  // It would wait for itself: tests run once the whole file is loaded.
  /^(\w+ \w+ = )?await (test|it|describe)\(/m,
];

/** Hooks outside of the suites of a file, its own or of what it shares. */
const HOOKS = /^(before|after|beforeEach|afterEach)\(|^(const|let) \w+ = (shared\w+|acrossShared\w*)\(/m;

/** Whether a file has hooks that must not apply to the other files of its process. */
export function hasHooks(file) {
  return HOOKS.test(readFileSync(file, 'utf8'));
}

/** Divides test files into jobs `{ files, cost }`, each for one process. The cost is about how many seconds it takes, to compare jobs. */
export function jobsOf(files) {
  const all = files.map(described).sort((a, b) => b.cost - a.cost);
  const shared = all.filter(({ canShare }) => canShare);
  const jobs = [
    ...together(
      shared.filter(({ hasPrograms }) => !hasPrograms),
      MOST_TOGETHER,
    ),
    ...together(
      shared.filter(({ hasPrograms }) => hasPrograms),
      MOST_WITH_PROGRAMS,
    ),
    ...all.filter(({ canShare }) => !canShare).map((each) => [each]),
  ];
  return jobs.map((job) => ({ files: job.map(({ file }) => file), cost: costOf(job) }));
}

function described(file) {
  const path = relative(ROOT, file);
  const text = existsSync(file) ? readFileSync(file, 'utf8') : '';
  const hasPrograms = WITH_PROGRAMS.path.test(path) || WITH_PROGRAMS.text.test(text);
  const canShare = /^(libs|apps|test)\//.test(path) && !OWN_PROCESS.some((pattern) => pattern.test(text));
  const guess = text.length * (hasPrograms ? PER_CHARACTER.withPrograms : PER_CHARACTER.plain);
  const hooks = HOOKS.test(text);
  return { file, hasPrograms, canShare, hooks, cost: MEASURED[sourceOf(path)] ?? guess };
}

/** Returns the source of a compiled test, as the measured costs name it. */
export function sourceOf(path) {
  return path.replace('/dist/', '/src/').replace(/\.js$/, '.ts');
}

/**
 * Puts each file, the longest first, where it makes no process long, or into a process of its own. Files with hooks run behind the others:
 * a hook of a module that both import is then outside of any suite, and applies to all of them.
 */
function together(files, most) {
  const jobs = [];
  for (const file of files) {
    const room = jobs.find((job) => job.length < most && costOf(job) + file.cost <= LONG);
    if (room) room.push(file);
    else jobs.push([file]);
  }
  return jobs.map((job) => job.sort((a, b) => a.hooks - b.hooks));
}

function costOf(files) {
  return files.reduce((sum, { cost }) => sum + cost, 0);
}
