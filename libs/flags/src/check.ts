import { FlagError } from './error.ts';
import type { FlagTable } from './flag.ts';
import { writeDuration } from './syntax.ts';

/** Rejects negative durations, which no flag accepts. */
export function checkDurations(table: FlagTable, values: Readonly<Record<string, unknown>>): void {
  for (const [flag, { kind }] of Object.entries(table)) {
    const value = values[flag];
    if (kind.name === 'duration' && (value as number) < 0) {
      throw new FlagError(flag, `bad duration ${writeDuration(value as number)}: it must not be negative`);
    }
  }
}

export function checkQueues(flags: { readonly 'xfr-channel-size': number }): void {
  const size = flags['xfr-channel-size'];
  if (size <= 0) throw new FlagError('xfr-channel-size', `bad size ${size}: want 1 or more`);
}
