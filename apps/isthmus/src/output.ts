import { plural } from '@isthmus/findings';
import { isPrintable, printable, printableJson, reasonOf } from '@isthmus/runtime';
import { type Answers, isMember, type Unanswered } from './plane/member.ts';
import { folded, foldedProse, type Room, UNBOUNDED, withCommands } from './table.ts';
import { EXIT, type ExitStatus, type Terminal } from './terminal.ts';

export { bytes, plural } from '@isthmus/findings';
export { EXIT, type ExitStatus };

/** Colours by meaning: a command says what it means, and a terminal without colours shows the same text. And the room for tables. */
export interface Style extends Room {
  good(text: string): string;
  bad(text: string): string;
  warning(text: string): string;
  faint(text: string): string;
  strong(text: string): string;
}

export function styleOf(colours: boolean, room = UNBOUNDED): Style {
  const paint = (code: number) => (text: string) => (colours && text !== '' ? `\u001b[${code}m${text}\u001b[0m` : text);
  // Green, red, yellow, faint and bold (ECMA-48, section 8.3.117).
  return { ...room, good: paint(32), bad: paint(31), warning: paint(33), faint: paint(2), strong: paint(1) };
}

/** Only commands that say so print Kubernetes objects, and only lists print names. */
export const FORMATS = ['table', 'wide', 'json', 'yaml', 'name', 'kubernetes'] as const;

export type Format = (typeof FORMATS)[number];

/** Formats a document for programs. */
export type Write = (view: object) => string;

/** Loads what writes YAML only if that is asked for. */
export async function writerOf(format: Format): Promise<Write | undefined> {
  if (format !== 'yaml') return undefined;
  const { Scalar, stringify } = await import('yaml');
  // Quoted, it can be escaped.
  const quoted = (_: unknown, value: unknown) => {
    if (typeof value !== 'string' || isPrintable(value)) return value;
    const scalar = new Scalar(value);
    scalar.type = 'QUOTE_DOUBLE';
    return scalar;
  };
  // A text of several lines stays one, so that none of them looks like a field.
  return (view) => stringify(view, quoted, { lineWidth: 0, doubleQuotedMinMultiLineLength: Number.MAX_SAFE_INTEGER });
}

/** Makes each text of a view printable: peers may have chosen it. Line ends go too, because what people read has a thing a line. */
export function cleaned<T>(view: T): T {
  if (typeof view === 'string') return printable(view) as T;
  if (Array.isArray(view)) return view.map((each) => cleaned(each)) as T;
  if (typeof view !== 'object' || view === null) return view;
  return Object.fromEntries(Object.entries(view).map(([name, value]) => [name, cleaned(value)])) as T;
}

/** Fields of messages, and what documents call them. */
const NAMES = {
  agentId: 'agent',
  hubId: 'hub',
  sessionId: 'session',
  dialId: 'dial',
  traceId: 'trace',
  open: 'tunnels',
} as const;

type Names = typeof NAMES;
type Renamed<T> = { readonly [K in keyof T as K extends keyof Names ? Names[K] : K]: T[K] };

/** Returns the fields of a message by the names that documents have for them. */
export function renamed<T extends object>(message: T): Renamed<T> {
  const fields = Object.entries(message).map(([name, value]) => [NAMES[name as keyof Names] ?? name, value]);
  return Object.fromEntries(fields) as Renamed<T>;
}

/** Prints what a command found, for people or for programs. */
export class Output {
  readonly format: Format;
  readonly style: Style;
  readonly #terminal: Terminal;
  readonly #write: Write | undefined;

  /** @param write set if the format is `yaml` */
  constructor(terminal: Terminal, format: Format, write?: Write) {
    this.#terminal = terminal;
    this.format = format;
    this.#write = write;
    const columns = terminal.interactive ? terminal.columns() : Number.POSITIVE_INFINITY;
    this.style = styleOf(terminal.colours && this.forPeople, { columns, wide: format === 'wide' });
  }

  get forPeople(): boolean {
    return this.format === 'table' || this.format === 'wide';
  }

  /** Prints one document for programs, or the result of `text` for people, whose prose fits the terminal. */
  show<V extends object>(view: V, text: (view: V, style: Style) => string): void {
    this.paste(view, (clean, style) => foldedProse(text(clean, style), style));
  }

  /** The same with commands, or lines of files: people paste them, so none is broken. */
  paste<V extends object>(view: V, text: (view: V, style: Style) => string): void {
    const document = () => printableJson(this.#write?.(view) ?? `${JSON.stringify(view, null, 2)}\n`);
    this.#terminal.out(this.forPeople ? text(cleaned(view), this.style) : document());
  }

  /** Prints what members answered and, for people below it, which did not. @param wrong whether the answers say that something is */
  answers<V extends Pick<Answers<unknown>, 'unanswered'>>(
    view: V,
    text: (view: V, style: Style) => string,
    wrong = false,
  ): ExitStatus {
    this.show(view, (clean, style) => text(clean, style) + unansweredText(clean.unanswered));
    return statusOf(wrong, view.unanswered);
  }

  /** Prints one document per line (YAML: one between separators), for output without an end. */
  line<V extends object>(view: V, text: (view: V, style: Style) => string): void {
    const document = () => (this.#write ? `---\n${this.#write(view)}` : `${JSON.stringify(view)}\n`);
    this.#terminal.out(this.forPeople ? `${text(cleaned(view), this.style)}\n` : printableJson(document()));
  }

  /** Prints a remark beside the result: only for people, on standard error. */
  remark(text: string): void {
    this.#terminal.err(`isthmus: ${printable(text)}\n`);
  }
}

const VERDICTS = { pass: ['good', 'ok  '], warn: ['warning', 'WARN'], fail: ['bad', 'FAIL'] } as const;

/** What was looked at, a line each, and below it what to do. */
export function verdictsText(
  all: readonly { name: string; outcome: keyof typeof VERDICTS; detail: string; todo?: string }[],
  style: Style,
): string {
  const width = Math.max(0, ...all.map(({ name }) => name.length));
  const lines = all.map(({ name, outcome, detail, todo }) => {
    const [paint, word] = VERDICTS[outcome];
    const below = todo === undefined ? '' : `${' '.repeat(width + 8)}-> ${todo}\n`;
    return `${style[paint](word)}  ${name.padEnd(width)}  ${detail}\n${below}`;
  });
  return folded(withCommands(lines.join('')), style);
}

/** Formats times as ISO 8601, for programs and people alike. Returns '' for 0, and for what is no time. */
export function isoTime(ms: number): string {
  const time = new Date(ms);
  return ms === 0 || Number.isNaN(time.getTime()) ? '' : time.toISOString();
}

/** Returns the smallest number that at least the part `of` of all does not exceed; 0 if there are none. @param sorted ascending */
export function quantile(sorted: readonly number[], of: number): number {
  return sorted[Math.max(0, Math.min(sorted.length, Math.ceil(of * sorted.length)) - 1)] ?? 0;
}

/** Formats milliseconds with as many digits as are useful: `0.42 ms`, `7.3 ms`, `420 ms`, `12.4 s`. */
export function millis(ms: number): string {
  if (ms >= 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms >= 100) return `${ms.toFixed(0)} ms`;
  return `${ms.toFixed(ms < 1 ? 2 : 1)} ms`;
}

const AGES = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'm'],
  [1000, 's'],
] as const;

/** Formats milliseconds in the two largest units: `0s`, `59s`, `2m5s`, `3h`, `12d4h`. */
export function age(ms: number): string {
  const first = AGES.findIndex(([unit]) => ms >= unit);
  if (first < 0) return '0s';
  let left = ms;
  const parts = AGES.slice(first, first + 2).map(([unit, name]) => {
    const count = Math.floor(left / unit);
    left -= count * unit;
    return count === 0 ? '' : `${count}${name}`;
  });
  return parts.join('');
}

/** Says how long ago a text was true: a reason from yesterday explains nothing today. */
export function ago(text: string, atMs: number, now: number): string {
  return `${text} (${age(Math.max(0, now - atMs))} ago)`;
}

/** Lists the members that did not answer, to print below the answers. */
export function unansweredText(unanswered: readonly Unanswered[]): string {
  const silent = unanswered.filter(isMember).map((each) => `  ${silentText(each)}\n`);
  const registry = unanswered.filter((each) => !isMember(each)).map((each) => `\n${silentText(each)}\n`);
  const members = silent.length > 0 ? [`\n${plural(silent.length, 'member')} did not answer:\n`, ...silent] : [];
  return [...members, ...registry].join('');
}

/** `hub-1 at 10.0.0.5:8095: no answer within 5 s` */
export function silentText({ member, address, reason }: Unanswered): string {
  return `${member}${address === '' || address === member ? '' : ` at ${address}`}: ${reason}`;
}

/** Something wrong takes precedence over a missing answer. */
export function statusOf(wrong: boolean, unanswered: readonly Unanswered[]): ExitStatus {
  if (wrong) return EXIT.wrong;
  return unanswered.length > 0 ? EXIT.unasked : EXIT.good;
}

/** Ends a command with one line on standard error. The text says what happened, to what, and what to do. */
export class Failure extends Error {
  override readonly name = 'Failure';
  readonly status: ExitStatus;

  constructor(status: ExitStatus, message: string, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
  }
}

export function usage(message: string): Failure {
  return new Failure(EXIT.usage, message);
}

/** What could not be written, and why: a disk that is full is no mistake of whoever named the file. */
export function unwritten(path: string, error: unknown): Failure {
  const full = ['ENOSPC', 'EDQUOT', 'EIO'].includes((error as NodeJS.ErrnoException).code ?? '');
  return new Failure(full ? EXIT.failed : EXIT.usage, `cannot write ${path}: ${reasonOf(error)}`);
}
