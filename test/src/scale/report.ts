import { totalmem } from 'node:os';
import { markdownTable, writtenBy } from '../harness/docs-page.ts';
import { aligned } from '../rig/figures.ts';
import { madeHere, madeWith } from '../rig/page.ts';
import { type Check, type Findings, merged, mib, seconds } from './findings.ts';

/** Does something, and says on stderr what it is and how long it took. */
export async function timed<T>(what: string, act: () => Promise<T>): Promise<T> {
  const start = performance.now();
  process.stderr.write(`${what} ... `);
  const result = await act();
  process.stderr.write(`${seconds(performance.now() - start)}\n`);
  return result;
}

/** Prints tables and checks that do not hold. A short run leaves out checks of time. @returns how many held, and how many did not */
export function print(
  all: readonly Findings[],
  short: boolean,
  out: (text: string) => unknown = (text) => process.stdout.write(text),
): [passed: number, failed: number] {
  const { tables, checks: found } = merged(all);
  const checks = found.filter(({ timed }) => !(short && timed));
  for (const { title, columns, rows } of tables) out(`\n${title}\n${aligned([columns, ...rows])}\n`);
  const failed = checks.filter(({ holds }) => !holds);
  for (const { what, found: instead } of failed) out(`\nFAILED ${what}: ${instead}`);
  out('\n');
  return [checks.length - failed.length, failed.length];
}

/**
 * Writes the figures of a whole run into a page of the documentation.
 * @param page its path in the repository
 */
export function write(all: readonly Findings[], page = 'docs/LIMITS.md', command = 'npm run scale'): void {
  const { tables, checks } = merged(all);
  const made = madeWith(
    command,
    madeHere(),
    `, ${mib(totalmem())}; all processes, the simulated agents too, share them`,
  );
  const sections = tables.map(({ title, columns, rows }) => `### ${title}\n\n${markdownTable(columns, rows)}`);
  writtenBy('scale', page).write([made, ...sections, ...bounds(checks)].join('\n\n'));
}

/** Returns the checks that do not hold. */
function bounds(checks: readonly Check[]): string[] {
  const lines = checks.filter(({ holds }) => !holds).map(({ what, found }) => `- ${what}: ${found}`);
  return lines.length === 0 ? [] : ['### What does not hold', lines.join('\n')];
}
