import { type Flag, FlagError, type FlagTable, type Values } from './flag.ts';

interface Parsed<T extends FlagTable> {
  readonly values: Values<T>;
  /** Names of the flags on the command line. */
  readonly set: ReadonlySet<string>;
  /** One line for each old name that was used, and one for all flags that have no effect. */
  readonly warnings: readonly string[];
}

type Environment = Readonly<Record<string, string | undefined>>;

/** What remains to be read of a command line, and what was read so far. */
interface Reading {
  readonly names: ReadonlyMap<string, string>;
  readonly table: FlagTable;
  readonly rest: string[];
  readonly values: Map<string, unknown>;
  readonly warnings: Set<string>;
}

/**
 * Reads a command line as Go's pflag does: `--name=value`, `--name value`, `--bool`, `-v4`, `--` before the end. Underscores in names
 * count as dashes, as in Kubernetes' own programs. Arguments that are no flags are an error.
 *
 * @param args without the program's own name
 * @throws FlagError
 */
export function parseFlags<T extends FlagTable>(table: T, args: readonly string[], env: Environment): Parsed<T> {
  const reading: Reading = { names: allNames(table), table, rest: [...args], values: new Map(), warnings: new Set() };
  let before = '';
  for (let arg = reading.rest.shift(); arg !== undefined; arg = reading.rest.shift()) {
    if (arg === '--') break;
    if (arg.startsWith('--')) readLong(reading, arg);
    else if (arg.startsWith('-') && arg.length > 1) readShort(reading, arg);
    else throw unexpected(reading, arg, before);
    before = arg;
  }
  const [extra] = reading.rest;
  if (extra !== undefined) throw unexpected(reading, extra, '');
  const set = new Set(reading.values.keys());
  const inert = inertWarning(table, set);
  return {
    values: withDefaults(table, reading.values, env),
    set,
    warnings: [...reading.warnings, ...(inert ? [inert] : [])],
  };
}

/** Returns every name that a table accepts, old ones included, with the flag it stands for. */
function allNames(table: FlagTable): Map<string, string> {
  const names = new Map<string, string>();
  for (const [name, flag] of Object.entries(table)) {
    names.set(name, name);
    for (const old of flag.oldNames ?? []) names.set(old.name, name);
  }
  return names;
}

function readLong(reading: Reading, arg: string): void {
  const equals = arg.indexOf('=');
  const written = arg.slice(2, equals < 0 ? undefined : equals);
  const value = equals < 0 ? undefined : arg.slice(equals + 1);
  if (written === '' || written.startsWith('-')) throw new FlagError(JSON.stringify(arg), 'this is not a flag');
  const spelled = written.replaceAll('_', '-');
  const name = reading.names.get(spelled);
  if (name === undefined) throw unknown(reading, `--${written}`, spelled);
  const flag = reading.table[name] as Flag;
  const old = flag.oldNames?.find((oldName) => oldName.name === spelled);
  if (old) reading.warnings.add(`--${spelled} is an old name: ${old.advice}`);
  store(reading, name, spelled, value ?? flag.kind.bare ?? reading.rest.shift());
}

/** Reads `-v4`, `-v=4`, `-v 4`, and combined letters of flags without a value. */
function readShort(reading: Reading, arg: string): void {
  for (let letters = arg.slice(1); letters.length > 0; ) {
    const letter = letters[0] as string;
    letters = letters.slice(1);
    const found = Object.entries(reading.table).find(([, flag]) => flag.short === letter);
    if (!found) throw unknown(reading, arg, arg.slice(1).split('=')[0] as string);
    const [name, flag] = found;
    const assigned = letters.startsWith('=');
    if (flag.kind.bare !== undefined && !assigned) {
      store(reading, name, name, flag.kind.bare);
      continue;
    }
    store(reading, name, name, assigned ? letters.slice(1) : letters || reading.rest.shift());
    return;
  }
}

/** @param written the name that was used, which may be an old one */
function store({ table, values }: Reading, name: string, written: string, text: string | undefined): void {
  const { kind } = table[name] as Flag;
  if (text === undefined) throw new FlagError(written, `its value is missing (${kind.name})`);
  try {
    values.set(name, kind.read(text, values.get(name)));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new FlagError(written, `bad value ${JSON.stringify(text)}: ${error.message}`);
  }
}

function unknown({ names }: Reading, shown: string, spelled: string): FlagError {
  return new FlagError(shown, `unknown flag; the nearest known one is --${nearest(spelled, names.keys())}`);
}

/** @param before the previous argument. If it is a boolean flag, this argument was probably meant as its value. */
function unexpected({ names, table }: Reading, arg: string, before: string): FlagError {
  const name = names.get(before.slice(2).replaceAll('_', '-'));
  const meant = name !== undefined && table[name]?.kind.bare !== undefined;
  const advice = meant ? `write ${before}=${arg}` : 'flags begin with --';
  return new FlagError(JSON.stringify(arg), `unexpected argument; ${advice}`);
}

function withDefaults<T extends FlagTable>(table: T, given: Map<string, unknown>, env: Environment): Values<T> {
  const entries = Object.entries(table).map(([name, { initial, unset }]) => [
    name,
    given.has(name) ? given.get(name) : unset ? unset.from?.(env) : initial,
  ]);
  return Object.fromEntries(entries);
}

function inertWarning(table: FlagTable, set: ReadonlySet<string>): string | undefined {
  const inert = [...set].flatMap((name) => {
    const reason = table[name]?.inert;
    return reason === undefined ? [] : [`--${name} (${reason})`];
  });
  return inert.length === 0 ? undefined : `these flags have no effect here: ${inert.join(', ')}`;
}

/** A flag with its value in a running program. */
export interface FlagInForce {
  readonly name: string;
  /** As it would be written on the command line, without secrets. */
  readonly value: string;
  /** The table, the command line, or set at startup: from the environment, or at random. */
  readonly source: 'default' | 'given' | 'derived';
  /** The default shown in --help. */
  readonly initial: string;
  readonly topic: string;
  /** Why it has no effect; empty for most flags. */
  readonly inert: string;
}

/** These end the program, so they are never in force. */
const QUESTIONS = new Set(['help', 'version']);

/** @param set names of the flags on the command line */
export function flagsInForce<T extends FlagTable>(
  table: T,
  values: Values<T>,
  set: ReadonlySet<string>,
): FlagInForce[] {
  return Object.entries(table)
    .filter(([name]) => !QUESTIONS.has(name))
    .map(([name, { kind, initial, unset, topic, inert = '', shown }]) => ({
      name,
      value: shown ? shown(kind.write(values[name])) : kind.write(values[name]),
      // What stays unset is decided later, by others.
      source: set.has(name) ? 'given' : unset && values[name] !== undefined ? 'derived' : 'default',
      initial: unset?.text ?? kind.write(initial),
      topic,
      inert,
    }));
}

/** Returns the known name that takes the fewest edits to reach. Among equals, one with the same first letter wins. */
export function nearest(name: string, known: Iterable<string>): string | undefined {
  let best: string | undefined;
  let fewest = Number.POSITIVE_INFINITY;
  for (const candidate of known) {
    const edits = distance(name, candidate) - (candidate[0] === name[0] ? 0.5 : 0);
    if (edits < fewest) [best, fewest] = [candidate, edits];
  }
  return best;
}

/** Levenshtein distance: insertions, deletions and substitutions. */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const substituted = (row[j - 1] as number) + (from[i - 1] === to[j - 1] ? 0 : 1);
      next.push(Math.min(substituted, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    row = next;
  }
  return row[to.length] as number;
}
