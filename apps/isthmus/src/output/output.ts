import type { Terminal } from '../terminal.ts';
import { type Style, styleOf } from './style.ts';

/** Only commands that say so print Kubernetes objects. */
export const FORMATS = ['table', 'wide', 'json', 'yaml', 'kubernetes'] as const;
export type Format = (typeof FORMATS)[number];

/** Formats a document for programs. */
type Write = (view: object) => string;

/** Prints what a command found, for people or for programs. */
export class Output {
  readonly format: Format;
  readonly style: Style;
  readonly #terminal: Terminal;
  readonly #yaml: Write | undefined;

  /** @param yaml set if the format is `yaml` */
  constructor(terminal: Terminal, format: Format, yaml?: Write) {
    this.#terminal = terminal;
    this.format = format;
    this.#yaml = yaml;
    const columns = terminal.interactive ? terminal.size().columns : Number.POSITIVE_INFINITY;
    this.style = styleOf(terminal.colours && this.forPeople, { columns, wide: format === 'wide' });
  }

  /** Makes the output. Loads what writes YAML only if that is asked for. */
  static async of(terminal: Terminal, format: Format): Promise<Output> {
    if (format !== 'yaml') return new Output(terminal, format);
    const { stringify } = await import('yaml');
    return new Output(terminal, format, (view) => stringify(view));
  }

  get forPeople(): boolean {
    return this.format === 'table' || this.format === 'wide';
  }

  /** Prints one document for programs, or the result of `text` for people. */
  show<V extends object>(view: V, text: (view: V) => string): void {
    const document = this.#yaml ? this.#yaml(view) : `${JSON.stringify(view, null, 2)}\n`;
    this.#terminal.out(this.forPeople ? text(view) : document);
  }

  /** Prints one document per line (YAML: one between separators), for output without an end. */
  line<V extends object>(view: V, text: (view: V) => string): void {
    const document = this.#yaml ? `---\n${this.#yaml(view)}` : `${JSON.stringify(view)}\n`;
    this.#terminal.out(this.forPeople ? `${text(view)}\n` : document);
  }

  /** Prints a remark beside the result: only for people, on standard error. */
  remark(text: string): void {
    this.#terminal.err(`isthmus: ${text}\n`);
  }
}
