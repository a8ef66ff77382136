import type { FlagTable, Values } from './flag.ts';

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

const asIs = (text: string): string => text;

/** @param set names of the flags on the command line */
export function flagsInForce<T extends FlagTable>(
  table: T,
  values: Values<T>,
  set: ReadonlySet<string>,
): FlagInForce[] {
  return Object.entries(table)
    .filter(([name]) => !QUESTIONS.has(name))
    .map(([name, { kind, initial, unset, topic, inert = '', shown = asIs }]) => ({
      name,
      value: shown(kind.write(values[name])),
      // What stays unset is decided later, by others.
      source: set.has(name) ? 'given' : unset && values[name] !== undefined ? 'derived' : 'default',
      initial: unset?.text ?? kind.write(initial),
      topic,
      inert,
    }));
}
