import type { Terminal } from '../terminal.ts';

/** A terminal that records what is written to it. */
export class TestTerminal implements Terminal {
  readonly args: readonly string[];
  readonly env: Terminal['env'];
  readonly interactive: boolean;
  readonly colours: boolean;
  readonly interrupted: AbortSignal;
  readonly #columns: number;
  stdout = '';
  stderr = '';

  constructor(
    args: readonly string[],
    options: {
      interactive?: boolean;
      colours?: boolean;
      interrupted?: AbortSignal;
      columns?: number;
      env?: Terminal['env'];
    } = {},
  ) {
    this.args = args;
    this.env = options.env ?? {};
    this.#columns = options.columns ?? 100;
    this.interactive = options.interactive ?? false;
    this.colours = options.colours ?? false;
    this.interrupted = options.interrupted ?? new AbortController().signal;
  }

  out(text: string): void {
    this.stdout += text;
  }

  err(text: string): void {
    this.stderr += text;
  }

  columns(): number {
    return this.#columns;
  }
}
