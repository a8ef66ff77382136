import type { Terminal } from '../terminal.ts';
import { type Style, styleOf } from './style.ts';

/** Only commands that say so print Kubernetes objects. */
export const FORMATS = ['table', 'json', 'kubernetes'] as const;
export type Format = (typeof FORMATS)[number];

/** Prints what a command found, for people or for programs. */
export class Output {
  readonly format: Format;
  readonly style: Style;
  readonly #terminal: Terminal;

  constructor(terminal: Terminal, format: Format) {
    this.#terminal = terminal;
    this.format = format;
    this.style = styleOf(terminal.colours && format === 'table');
  }

  /** Prints one JSON document for programs, or the result of `text` for people. */
  show<V extends object>(view: V, text: (view: V) => string): void {
    this.#terminal.out(this.format === 'json' ? `${JSON.stringify(view, null, 2)}\n` : text(view));
  }

  /** Prints one JSON document per line, for output without an end. */
  line<V extends object>(view: V, text: (view: V) => string): void {
    this.#terminal.out(`${this.format === 'json' ? JSON.stringify(view) : text(view)}\n`);
  }

  /** Prints a remark beside the result: only for people, on standard error. */
  remark(text: string): void {
    this.#terminal.err(`isthmus: ${text}\n`);
  }
}
