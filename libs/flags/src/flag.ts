import * as syntax from './syntax.ts';

/** How values of one type are read and written. `name` is shown after the flag in --help. */
export interface Kind<V> {
  readonly name: string;
  /** @param before the value from earlier occurrences of the flag; undefined for the first */
  read(text: string, before: V | undefined): V;
  write(value: V): string;
  /** The value of a flag that is written without one. */
  readonly bare?: string;
}

/** Set for a flag that holds the port of a listener. */
export interface ListenerPort {
  /** The flag that holds the address. */
  readonly bind: string;
  readonly lowest: number;
  readonly highest: number;
  /** Whether 0 turns the listener off. */
  readonly optional?: true;
}

interface FlagOptions<V> {
  readonly short?: string;
  /** Where the value comes from if the flag is not set, in place of its default. Without `from`, it stays undefined. */
  readonly unset?: { from?(env: Readonly<Record<string, string | undefined>>): V; readonly text: string };
  /** Why the flag has no effect here. It is accepted, and named in a warning. */
  readonly inert?: string;
  /** Older names that are still accepted. */
  readonly oldNames?: readonly { readonly name: string; readonly advice: string }[];
  readonly port?: ListenerPort;
  /** Not a flag of upstream's programs. Set for all of an `ownTopic`. */
  readonly own?: boolean;
  /** Removes secrets from a value before it is shown as a flag in force. */
  readonly shown?: (text: string) => string;
  /** Hidden from --help, as upstream does with flags that it will remove. */
  readonly hidden?: boolean;
}

export interface Flag<V = unknown> extends FlagOptions<V> {
  readonly kind: Kind<V>;
  readonly initial: V;
  readonly help: string;
  /** The heading in --help. */
  readonly topic: string;
}

export type FlagTable = Readonly<Record<string, Flag>>;

/** The values of a table's flags: `Values<typeof serverFlags>['server-port']` is a number. Durations are milliseconds. */
export type Values<T> = { readonly [K in keyof T]: T[K] extends { readonly kind: Kind<infer V> } ? V : never };

/** A flag that has no topic yet. */
type Untitled<V> = Omit<Flag<V>, 'topic'>;

/** Puts flags under one heading. */
export function topic<T extends Readonly<Record<string, Untitled<unknown>>>>(
  title: string,
  flags: T,
): { readonly [K in keyof T]: T[K] & { readonly topic: string } } {
  const titled = Object.entries(flags).map(([name, flag]) => [name, { ...flag, topic: title }]);
  return Object.fromEntries(titled) as { [K in keyof T]: T[K] & { readonly topic: string } };
}

/** The same for flags that upstream's programs do not have. */
export function ownTopic<T extends Readonly<Record<string, Untitled<unknown>>>>(title: string, flags: T) {
  const own = Object.entries(flags).map(([name, flag]) => [name, { ...flag, own: true }]);
  return topic(title, Object.fromEntries(own) as T);
}

function flagOf<V>(kind: Kind<V>) {
  return (initial: V, help: string, options: FlagOptions<V> = {}): Untitled<V> => ({ kind, initial, help, ...options });
}

/** The same for a flag that may stay unset. */
function optional<V>(kind: Kind<V>): Kind<V | undefined> {
  return { ...kind, write: (value) => (value === undefined ? '' : kind.write(value)) };
}

const asIs = (text: string): string => text;

const INT: Kind<number> = { name: 'int', read: syntax.readInteger, write: String };
const DURATION: Kind<number> = { name: 'duration', read: syntax.readDuration, write: syntax.writeDuration };

export const string = flagOf<string>({ name: 'string', read: asIs, write: asIs });
export const bool = flagOf<boolean>({ name: 'bool', read: syntax.readBool, write: String, bare: 'true' });
export const int = flagOf(INT);
/** Undefined if it is not set. The default shown is then not the whole story: see `unset`. */
export const optionalInt = flagOf(optional(INT));
export const uint = flagOf<number>({ name: 'uint', read: syntax.readUnsigned, write: String });
export const float32 = flagOf<number>({ name: 'float32', read: syntax.readFloat32, write: String });
/** In milliseconds. */
export const duration = flagOf(DURATION);
/** In milliseconds; undefined if it is not set: see `unset`. */
export const optionalDuration = flagOf(optional(DURATION));
/** klog's verbosity. */
export const level = flagOf<number>({ name: 'Level', read: syntax.readInt32, write: String });

/** Comma-separated lists. A repeated flag adds to the list. `[]`, which is how pflag writes an empty list, is accepted as one. */
export const strings = flagOf<readonly string[]>({
  name: 'strings',
  read: (text, before = []) => (text === '' || text === '[]' ? before : [...before, ...syntax.readCsv(text)]),
  write: (list) => `[${syntax.writeCsv(list)}]`,
});

/** Of a flag that upstream reads as one string: several with commas or by repeating it. Empty ones are kept, to be refused. */
export const names = flagOf<readonly string[]>({
  name: 'string',
  read: (text, before = []) => [...before, ...text.split(',').map((name) => name.trim())],
  write: (list) => list.join(','),
});

const SEVERITIES = ['INFO', 'WARNING', 'ERROR', 'FATAL'];

/** klog's severity: a number, or one of its names. */
export const severity = flagOf<number>({
  name: 'severity',
  read: (text) => {
    const named = SEVERITIES.indexOf(text.toUpperCase());
    return named >= 0 ? named : syntax.readInt32(text);
  },
  write: String,
});

/** klog's `pattern=N,...`. */
export const moduleSpec = flagOf<string>({
  name: 'moduleSpec',
  read: (text) => matching(text, /^([^=,]+=\d+(,[^=,]+=\d+)*,?)?$/, 'want a list such as gateway=4,hub*=5'),
  write: asIs,
});

/** klog's `file:line`. */
export const traceLocation = flagOf<string>({
  name: 'traceLocation',
  read: (text) => matching(text, /^([^:]+\.go:[1-9]\d*)?$/, 'want a place such as server.go:234'),
  write: (place) => place || ':0',
});

/** One of a few words. */
export function oneOf<const W extends readonly string[]>(words: W) {
  const [last, ...others] = [...words].filter((word) => word !== '').reverse();
  const wanted = `want ${[others.reverse().join(', '), last].filter(Boolean).join(' or ')}`;
  return flagOf<W[number]>({
    name: 'string',
    read: (text) => {
      const found = words.find((word) => word === text);
      if (found === undefined) throw new SyntaxError(wanted);
      return found as W[number];
    },
    write: asIs,
  });
}

/** A number of 1 or more, or the word `all`. */
export const countOrAll = flagOf<number | 'all'>({
  name: 'int|all',
  read: (text) => {
    if (text === 'all') return 'all';
    const count = syntax.readInteger(text);
    if (count < 1) throw new SyntaxError('want 1 or more, or all');
    return count;
  },
  write: String,
});

function matching(text: string, pattern: RegExp, wanted: string): string {
  if (!pattern.test(text)) throw new SyntaxError(wanted);
  return text;
}

/** An invalid command line. The message is one line that names the flag and says what to do. */
export class FlagError extends Error {
  override readonly name = 'FlagError';
  /** As shown in the message: `--server-port`, or the argument that is no flag. */
  readonly flag: string;

  /** @param flag a flag's name without dashes, or the text in its place */
  constructor(flag: string, problem: string) {
    const shown = /^[a-z]/.test(flag) ? `--${flag}` : flag;
    super(`${shown}: ${problem}`);
    this.flag = shown;
  }
}

/** Reads the value of a flag. @throws FlagError that says what was thrown */
export function checked<T>(flag: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new FlagError(flag, (error as Error).message);
  }
}
