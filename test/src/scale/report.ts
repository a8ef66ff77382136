import { cpus, totalmem } from 'node:os';
import { writtenBy } from '../harness/docs-page.ts';
import { aligned } from '../rig/figures.ts';
import { type Check, type Findings, merged, mib, section } from './findings.ts';

/** Prints tables, checks that do not hold, and the closing line. A short run leaves out checks of time. @returns whether all held */
export function print(all: readonly Findings[], short: boolean, out: (text: string) => void): boolean {
  const { tables, checks: found } = merged(all);
  const checks = found.filter(({ timed }) => !(short && timed));
  for (const { title, columns, rows } of tables) out(`\n${title}\n${aligned([columns, ...rows])}\n`);
  const failed = checks.filter(({ holds }) => !holds);
  for (const { what, found: instead } of failed) out(`\nFAILED ${what}: ${instead}`);
  out(`\n${checks.length - failed.length} passed, ${failed.length} failed\n`);
  return failed.length === 0 && checks.length > 0;
}

/**
 * Writes the figures of a whole run into a page of the documentation.
 * @param page its path in the repository
 */
export function write(all: readonly Findings[], page = 'docs/LIMITS.md', command = 'npm run scale'): void {
  const { tables, checks } = merged(all);
  const parts = [measuredOn(command), ...tables.map(section), bounds(checks)];
  writtenBy('scale', page).write(parts.filter((part) => part !== '').join('\n\n'));
}

function measuredOn(command: string): string {
  const { length, 0: first } = cpus();
  const machine = `${length} processors (${first?.model.trim()}), ${mib(totalmem())}`;
  return `Measured with \`${command}\` on Node ${process.versions.node}, ${machine}; all processes, the simulated agents too, share them.`;
}

/** Returns the checks that do not hold, or nothing. */
function bounds(checks: readonly Check[]): string {
  const lines = checks.filter(({ holds }) => !holds).map(({ what, found }) => `- ${what}: ${found}`);
  return lines.length === 0 ? '' : ['### What does not hold', '', ...lines].join('\n');
}
