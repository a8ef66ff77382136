import type { FlagTable, Values } from './flag.ts';

/** A flag as it holds in a running program. */
export interface FlagInForce {
  readonly name: string;
  /** As it would be written on the command line, without secrets. */
  readonly value: string;
  /** From the table, from the command line, or found at the start: in the environment, or by chance. */
  readonly source: 'default' | 'given' | 'derived';
  /** What stands in --help. */
  readonly initial: string;
  readonly topic: string;
  /** Why it changes nothing; empty for most. */
  readonly inert: string;
}

/** Not flags that hold: they end the program. */
const QUESTIONS = new Set(['help', 'version']);

const asIs = (text: string): string => text;

/** @param set names of the flags that stand on the command line */
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
      source: set.has(name) ? 'given' : unset ? 'derived' : 'default',
      initial: unset?.text ?? kind.write(initial),
      topic,
      inert,
    }));
}
