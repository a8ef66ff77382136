import process from 'node:process';
import { printable } from '@isthmus/runtime';

/** Exit statuses of the process, for scripts. */
export const EXIT = {
  /** Asked, done, and everything is fine. */
  good: 0,
  /** Something is wrong with the plane: a check or a dial failed. */
  wrong: 1,
  /** The command line is invalid. */
  usage: 2,
  /** Could not ask: nobody answered, or a member whose answer matters did not. The answers that came are still printed. */
  unasked: 3,
  /** Everything works, and something needs attention before it does not. */
  attention: 4,
  /** This program itself failed: what it found could not be written, or it has a bug. */
  failed: 5,
} as const;

export type ExitStatus = (typeof EXIT)[keyof typeof EXIT];

/** The process as a command sees it. */
export interface Terminal {
  /** The command line without the program's own name. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  out(text: string): void;
  err(text: string): void;
  /** Whether people read standard output live. */
  readonly interactive: boolean;
  readonly colours: boolean;
  /** In characters; 80 if the terminal does not tell. */
  columns(): number;
  /** Aborts at the first SIGINT or SIGTERM. */
  readonly interrupted: AbortSignal;
}

/** Makes a text printable, and keeps its lines. */
export function cleanLines(text: string): string {
  return text.split('\n').map(printable).join('\n');
}

/** The terminal of this process, which ends here if it fails itself. */
export function processTerminal(): Terminal {
  const { stdout, stderr, env } = process;
  const fail = (text: string) => {
    stderr.write(`isthmus: ${text}\n`);
    process.exit(EXIT.failed);
  };
  // Wherever a bug throws, its place is what matters.
  process.on('uncaughtException', (error) => fail(cleanLines(`${error?.stack ?? error}`)));
  const interrupt = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      // The second signal does not wait for the command to finish.
      if (interrupt.signal.aborted) process.exit(signal === 'SIGINT' ? 130 : 143);
      interrupt.abort();
    });
  }
  stdout.on('error', (error: NodeJS.ErrnoException) => {
    // `isthmus tunnels | head` closes the pipe. That is no failure.
    if (error.code === 'EPIPE') process.exit();
    // A disk is full.
    fail(`cannot write what it found: ${error.message}`);
  });
  stderr.on('error', () => {});
  const interactive = stdout.isTTY === true && env.TERM !== 'dumb';
  return {
    args: process.argv.slice(2),
    env,
    out: (text) => stdout.write(text),
    err: (text) => stderr.write(text),
    interactive,
    // https://no-color.org: it counts if it is set and not empty.
    colours: interactive && !env.NO_COLOR,
    columns: () => stdout.columns || 80,
    interrupted: interrupt.signal,
  };
}
