import process from 'node:process';
import { type DestinationStream, type Logger, pino } from 'pino';
import { LogSink, stderrWriter } from './log-sink.ts';
import { RecentLines } from './recent-lines.ts';
import { redactLine } from './redact.ts';
import { textLine } from './text.ts';

export type { Logger } from 'pino';

/** A program's own log. An operator can read its last lines and change its level at run time. */
export interface ProgramLogger extends Logger {
  readonly recent: RecentLines;
  readonly levelOf: typeof levelOf;
}

export interface LoggerOptions {
  /** The name of the program or part. */
  readonly name: string;
  readonly format: 'text' | 'json';
  /** klog's `-v`. */
  readonly verbosity: number;
  /** Default: the process's standard error, as with klog. */
  readonly destination?: LogDestination;
}

export interface LogDestination extends DestinationStream {
  /** Writes lines that were accepted but not yet written. */
  flush?(): void;
}

/**
 * Returns the level for klog's `-v`: 0 and 1 show what an operator should look at (`warn`), 2 to 4 also each dial and session
 * (`info`; upstream's default is 4), 5 to 7 also what each part does (`debug`), 8 and more everything (`trace`).
 */
export function levelOf(verbosity: number): 'warn' | 'info' | 'debug' | 'trace' {
  if (verbosity < 2) return 'warn';
  if (verbosity < 5) return 'info';
  return verbosity < 8 ? 'debug' : 'trace';
}

/** Creates a pino logger that removes secrets. Text is formatted in this thread, because a pino transport needs a file of its own. */
export function createLogger({ name, format, verbosity, destination }: LoggerOptions): ProgramLogger {
  const target: LogDestination =
    destination ?? standardError((lines, reason) => logger.warn({ lines, reason }, 'log lines were lost'));
  const recent = new RecentLines();
  const sink = {
    write(line: string) {
      const clean = redactLine(line);
      recent.take(clean);
      target.write(format === 'text' ? textLine(clean) : clean);
    },
    /** Called by pino after a line of level `fatal`, as the process may end within this event loop turn. */
    flushSync: () => target.flush?.(),
  };
  const logger = pino(
    {
      name,
      base: { name },
      level: levelOf(verbosity),
      timestamp: isoTime(),
      formatters: { level: (level) => ({ level }) },
    },
    sink,
  );
  return Object.assign(logger, { recent, levelOf });
}

/** Returns a line's time in pino's form. Formats it once per millisecond at most, since that costs a sixth of a line. */
function isoTime(): () => string {
  let at: number | undefined;
  let field = '';
  return () => {
    const now = Date.now();
    if (now !== at) field = `,"time":"${new Date(now).toISOString()}"`;
    at = now;
    return field;
  };
}

function standardError(lost: (lines: number, reason: string) => void): LogSink {
  const sink = new LogSink(stderrWriter(), lost);
  process.on('exit', () => sink.exit());
  return sink;
}
