import process from 'node:process';

/** What a command sees of its process. */
export interface Terminal {
  /** The command line without the program's own name. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  out(text: string): void;
  err(text: string): void;
  /** Whether people read standard output as it comes: then it may be redrawn. */
  readonly interactive: boolean;
  readonly colours: boolean;
  /** In characters; of a terminal that does not tell, 80 and 24. */
  size(): { readonly columns: number; readonly rows: number };
  /** Aborts with the first SIGINT or SIGTERM. */
  readonly interrupted: AbortSignal;
}

export function processTerminal(): Terminal {
  const { stdout, stderr, env } = process;
  const interrupt = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      // The second does not wait for what the command still has to do.
      if (interrupt.signal.aborted) process.exit(signal === 'SIGINT' ? 130 : 143);
      interrupt.abort();
    });
  }
  // `isthmus tunnels | head` closes the pipe: nobody reads on, which is no failure.
  stdout.on('error', () => process.exit());
  const interactive = stdout.isTTY === true && env.TERM !== 'dumb';
  return {
    args: process.argv.slice(2),
    env,
    out: (text) => stdout.write(text),
    err: (text) => stderr.write(text),
    interactive,
    // https://no-color.org: set and not empty.
    colours: interactive && !env.NO_COLOR,
    size: () => ({ columns: stdout.columns || 80, rows: stdout.rows || 24 }),
    interrupted: interrupt.signal,
  };
}
