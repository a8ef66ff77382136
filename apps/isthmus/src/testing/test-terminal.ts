import type { Terminal } from '../terminal.ts';

/** A terminal that records what is written to it. */
export class TestTerminal implements Terminal {
  readonly args: readonly string[];
  readonly env: Terminal['env'];
  readonly interactive: boolean;
  readonly colours: boolean;
  readonly interrupted: AbortSignal;
  stdout = '';
  stderr = '';
  #size = { columns: 100, rows: 30 };
  readonly #typed = new Set<(input: string) => void>();
  readonly #resized = new Set<() => void>();

  constructor(
    args: readonly string[],
    options: { interactive?: boolean; colours?: boolean; interrupted?: AbortSignal; env?: Terminal['env'] } = {},
  ) {
    this.args = args;
    this.env = options.env ?? {};
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

  /** Types these keys, if somebody listens. */
  type(input: string): void {
    for (const typed of this.#typed) typed(input);
  }

  keys(typed: (input: string) => void): () => void {
    this.#typed.add(typed);
    return () => this.#typed.delete(typed);
  }

  resize(columns: number, rows: number): void {
    this.#size = { columns, rows };
    for (const changed of this.#resized) changed();
  }

  resized(changed: () => void): () => void {
    this.#resized.add(changed);
    return () => this.#resized.delete(changed);
  }

  size(): { readonly columns: number; readonly rows: number } {
    return this.#size;
  }
}
