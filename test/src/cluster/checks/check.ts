import type { Scope } from '../../harness/index.ts';
import type { Way } from '../way.ts';

/** What a check runs with. */
export interface Context {
  /** What it starts ends with it. */
  readonly scope: Scope;
  readonly way: Way;
  /** A pod of the probe. */
  readonly pod: string;
  /** Where it may write. */
  readonly directory: string;
}

/** Something that an operator does through the API server. */
export interface Check {
  readonly name: string;
  /** Returns what to print of it. Throws if it fails. */
  run(context: Context): Promise<string>;
}
