import { existsSync, readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { ROOT } from './workspace.mjs';

/** Tests of whole planes, and tests with a Redis server of their own. For their length, they take a hundred times as long as others. */
const WITH_PROGRAMS = { path: /^test\//, text: /\bredisMissing\b/, times: 100 };

/**
 * How many files share a process. Starting Node and loading a package costs more than the tests of a typical file. More files in a
 * process gain little, and leave the other processors idle.
 */
const MOST_TOGETHER = 24;
/** The same for tests that start programs. At full size they take minutes each. */
const MOST_WITH_PROGRAMS = process.env.ISTHMUS_SLOW_TESTS ? 1 : 3;

/**
 * What a file does to its whole process. Hooks outside of a suite apply to the tests of all files; the heap, the loaded modules and
 * unhandled rejections are those of all files.
 */
const OWN_PROCESS = [
  /^(before|after|beforeEach|afterEach)\(/m,
  // They have such a hook.
  /^(const|let) \w+ = (sharedByFile|acrossShared)\(/m,
  /\bmemoryUsage\b|\bnode:v8\b|\bcreateRequire\b/,
  /\bprocess\.(on|once|exit|chdir)\(/,
  // The clock and the timers are also those of what runs the tests.
  /\bmethod\((globalThis|performance|process|Date)\b/,
  // It would wait for itself: tests run once the whole file is loaded.
  /^(\w+ \w+ = )?await (test|it|describe)\(/m,
];

/** Divides test files into jobs `{ files, cost }`, each for one process. The cost is a guess at how long it takes, to compare jobs. */
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
  return jobs.map((job) => ({
    files: job.map(({ file }) => file),
    cost: job.reduce((sum, { cost }) => sum + cost, 0),
  }));
}

function described(file) {
  const text = existsSync(file) ? readFileSync(file, 'utf8') : '';
  const hasPrograms = WITH_PROGRAMS.path.test(relative(ROOT, file)) || WITH_PROGRAMS.text.test(text);
  const canShare =
    /^(libs|apps|test)\//.test(relative(ROOT, file)) && !OWN_PROCESS.some((pattern) => pattern.test(text));
  return { file, hasPrograms, canShare, cost: text.length * (hasPrograms ? WITH_PROGRAMS.times : 1) };
}

function together(files, most) {
  const count = Math.ceil(files.length / most);
  return Array.from({ length: count }, (_, job) => files.filter((_, index) => index % count === job));
}
