import type { Scope } from '../harness/index.ts';
import type { Node } from './node.ts';
import type { Options } from './options.ts';
import type { Replaced, Strike } from './static-pods.ts';
import type { Way } from './way.ts';

/** What a step has to work with. */
export interface Ground extends Pick<Options, 'image' | 'short'> {
  /** Where the control plane is. */
  readonly node: Node;
  readonly way: Way;
  /** Where it may write. */
  readonly directory: string;
  /** Of the machine's control groups. */
  readonly group: string;
  /** A pod of the probe. */
  readonly pod: string;
  /** What a step starts ends with it; what a plan starts, with the cluster. */
  readonly scope: Scope;
}

/** Something that an operator does through the API server. */
export interface Check {
  readonly name: string;
  /** Returns what to print of it. Throws if it fails. */
  run(ground: Ground): Promise<string>;
}

/** Something that is done to the cluster under load. */
export interface Fault {
  readonly name: string;
  /** How calls may fail, because what they call is away. Admissions may then fail too. */
  readonly mayFail?: RegExp;
  /** Whether one call may end without an answer and without an error: the one that is under way when something is killed. */
  readonly oneSilent?: boolean;
  /** Whether long calls may be cut, because what carries them ends. */
  readonly mayCut?: boolean;
  /** Whether admissions may be cut, too, which are under way when something is killed. */
  readonly mayCutAdmissions?: boolean;
  /** Puts something else there before the fault, and returns what puts ours back. Short runs leave out such faults. */
  readonly instead?: () => Promise<() => Promise<void>>;
  /** Resolves when the cluster is whole again. */
  commit(ground: Ground & { readonly strike: Strike; readonly replaced: Replaced }): Promise<unknown>;
}

/** Prepares a way. Returns what is then done over it, in this order. */
export type Plan = (ground: Ground) => Promise<readonly (Check | Fault)[]>;
