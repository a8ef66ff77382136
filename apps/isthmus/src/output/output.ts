import type { Terminal } from '../terminal.ts';
import { type Style, styleOf } from './style.ts';

export const FORMATS = ['table', 'json'] as const;
export type Format = (typeof FORMATS)[number];

/** Where a command says what it found: to people, or to programs. */
export class Output {
  readonly format: Format;
  readonly style: Style;
  readonly #terminal: Terminal;

  constructor(terminal: Terminal, format: Format) {
    this.#terminal = terminal;
    this.format = format;
    this.style = styleOf(terminal.colours && format === 'table');
  }

  /** One JSON document for programs, or what `text` makes of it for people. */
  show<V extends object>(view: V, text: (view: V) => string): void {
    this.#terminal.out(this.format === 'json' ? `${JSON.stringify(view, null, 2)}\n` : text(view));
  }

  /** One JSON document a line, for what has no end. */
  line<V extends object>(view: V, text: (view: V) => string): void {
    this.#terminal.out(`${this.format === 'json' ? JSON.stringify(view) : text(view)}\n`);
  }

  /** Beside the result: to people alone, on standard error. */
  remark(text: string): void {
    this.#terminal.err(`isthmus: ${text}\n`);
  }
}
