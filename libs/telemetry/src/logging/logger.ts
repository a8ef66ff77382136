import { type DestinationStream, type Logger, pino, stdTimeFunctions } from 'pino';
import { redactLine } from './redact.ts';
import { textLine } from './text.ts';

export type { Logger } from 'pino';

export interface LoggerOptions {
  /** The program's or part's name. */
  readonly name: string;
  readonly format: 'text' | 'json';
  /** klog's `-v`. */
  readonly verbosity: number;
  /** Default: the process's stderr, as klog's. */
  readonly destination?: DestinationStream;
}

/**
 * The level for klog's `-v`: 0 and 1 show what an operator should look at (`warn`), 2 to 4 each dial and session too
 * (`info`; upstream's default is 4), 5 to 7 each part's doings (`debug`), 8 and more everything (`trace`).
 */
export function levelOf(verbosity: number): 'warn' | 'info' | 'debug' | 'trace' {
  if (verbosity < 2) return 'warn';
  if (verbosity < 5) return 'info';
  return verbosity < 8 ? 'debug' : 'trace';
}

/** A pino logger whose lines hold no secrets. Text is made in this thread: a pino transport would need a file of its own to load. */
export function createLogger({ name, format, verbosity, destination = process.stderr }: LoggerOptions): Logger {
  const sink: DestinationStream = {
    write(line) {
      const clean = redactLine(line);
      destination.write(format === 'text' ? textLine(clean) : clean);
    },
  };
  return pino(
    {
      name,
      base: { name },
      level: levelOf(verbosity),
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (level) => ({ level }) },
    },
    sink,
  );
}
