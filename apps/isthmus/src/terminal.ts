import process from 'node:process';

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
  /** In characters; 80 by 24 if the terminal does not tell. */
  size(): { readonly columns: number; readonly rows: number };
  /** Aborts at the first SIGINT or SIGTERM. */
  readonly interrupted: AbortSignal;
}

/** @param full the exit status if standard output takes no more: a disk is full */
export function processTerminal(full: number): Terminal {
  const { stdout, stderr, env } = process;
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
    stderr.write(`isthmus: cannot write what it found: ${error.message}\n`);
    process.exit(full);
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
    size: () => ({ columns: stdout.columns || 80, rows: stdout.rows || 24 }),
    interrupted: interrupt.signal,
  };
}
