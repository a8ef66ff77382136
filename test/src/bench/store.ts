import { readFileSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { median } from '../rig/figures.ts';
import type { Result } from '../rig/load/messages.ts';
import type { Made as MadeOn } from '../rig/page.ts';

/** One line on one contender, once. */
export interface Run extends Result {
  readonly line: string;
  readonly contender: string;
  readonly round: number;
}

/** How a run was made. */
export interface Made extends MadeOn {
  readonly windowMs: number;
  readonly rounds: number;
  /** What part of the processors' time others used, in the second before the run: 0 to 1. Unset in old files. */
  readonly busy?: number;
}

/** Everything that a run of the bench measured, as its JSON holds it. */
export interface Book {
  readonly made: Made;
  readonly runs: readonly Run[];
}

/** How long the processors are watched, in milliseconds. */
const WATCHED_MS = 1000;

/** Time of all processors so far, and of it what nobody used, in milliseconds. */
function machineMs() {
  const times = cpus().map((each) => each.times);
  const all = times.flatMap((each) => Object.values(each)).reduce((sum, each) => sum + each, 0);
  return { all, idle: times.reduce((sum, { idle }) => sum + idle, 0) };
}

/** Returns what part of the processors' time is used now: 0 to 1. Call it while this process does nothing. */
export async function busyNow(): Promise<number> {
  const before = machineMs();
  await pause(WATCHED_MS);
  const after = machineMs();
  const all = after.all - before.all;
  return all > 0 ? 1 - (after.idle - before.idle) / all : 0;
}

export function readBook(path: string): Book {
  const book = JSON.parse(readFileSync(path, 'utf8')) as Partial<Book>;
  if (!book.made || !Array.isArray(book.runs)) throw new Error(`${path} holds no runs of npm run bench`);
  return book as Book;
}

export function writeBook(path: string, book: Book): void {
  writeFileSync(path, `${JSON.stringify(book, undefined, 1)}\n`);
}

/** Returns the median of all rounds; undefined if none has the figure. */
export function figureOf({ runs }: Book, line: string, contender: string, figure: string): number | undefined {
  return median(
    runs.flatMap((run) => {
      const value = run.line === line && run.contender === contender ? run.figures[figure] : undefined;
      return value === undefined ? [] : [value];
    }),
  );
}

/** Returns the contenders of a book, in order of appearance. */
export function contendersOf({ runs }: Book): string[] {
  return [...new Set(runs.map(({ contender }) => contender))];
}
