import type { Kubernetes } from '../kubernetes.ts';
import type { Way } from '../way.ts';
import type { Load } from './load.ts';

/** What a fault is committed against. */
export interface Scene {
  readonly kubernetes: Kubernetes;
  readonly way: Way;
  readonly load: Load;
  /** Leaves out the wait for the end of what drains, which takes long calls with it two minutes later. */
  readonly short: boolean;
}

/** Something that is done to the cluster under load. */
export interface Fault {
  readonly name: string;
  /** How calls may fail, because what they call is away. */
  readonly mayFail?: RegExp;
  /** Whether one call may end without an answer and without an error: the one that is under way when something is killed. */
  readonly oneSilent?: boolean;
  /** Puts something else there before the fault, and ours back after it. Short runs leave out such faults. */
  readonly comparison?: { begin(): Promise<void>; end(): Promise<void> };
  /** Resolves when the cluster is whole again. */
  commit(scene: Scene): Promise<void>;
}
