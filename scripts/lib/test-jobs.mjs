import { readFileSync, statSync } from 'node:fs';
import { relative } from 'node:path';
import { ROOT } from './workspace.mjs';

/**
 * How many files share a process. Starting Node and loading a package costs more than the tests of a typical file. More files in a
 * process gain little, and leave the other processors idle.
 */
const MOST_TOGETHER = 24;

/** Tests of the programs start processes, and some change what all tests of a process see. */
const UNIT_TESTS = /^(libs|apps)\//;

/**
 * What a file does to its whole process. Hooks outside of a suite apply to the tests of all files; the heap, the loaded modules and
 * unhandled rejections are those of all files.
 */
const OWN_PROCESS = [
  /^(before|after|beforeEach|afterEach)\(/m,
  /\bmemoryUsage\b|\bnode:v8\b|\bcreateRequire\b/,
  /\bprocess\.(on|once|exit|chdir)\(/,
  // The clock and the timers are also those of what runs the tests.
  /\bmethod\((globalThis|performance|process|Date)\b/,
  // It would wait for itself: tests run once the whole file is loaded.
  /^(\w+ \w+ = )?await (test|it|describe)\(/m,
];

/**
 * Divides test files into lists, each for one process. The largest come first: a long job that begins last keeps one processor busy while
 * the others are idle.
 */
export function jobsOf(files) {
  const sized = files.map((file) => ({ file, size: statSync(file, { throwIfNoEntry: false })?.size ?? 0 }));
  sized.sort((a, b) => b.size - a.size);
  const shared = sized.filter(({ file }) => canShare(file));
  const alone = sized.filter((each) => !shared.includes(each));
  const count = Math.ceil(shared.length / MOST_TOGETHER);
  const together = Array.from({ length: count }, (_, job) => shared.filter((_, index) => index % count === job));
  return [...together, ...alone.map((each) => [each])].map((job) => job.map(({ file }) => file));
}

function canShare(file) {
  if (!UNIT_TESTS.test(relative(ROOT, file))) return false;
  const text = readFileSync(file, 'utf8');
  return !OWN_PROCESS.some((pattern) => pattern.test(text));
}
