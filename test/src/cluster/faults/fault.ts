import type { Kubernetes } from '../kubernetes.ts';
import type { Way } from '../way.ts';
import type { Load, Tolerance } from './load.ts';

/** What a fault is committed against. */
export interface Scene {
  readonly kubernetes: Kubernetes;
  readonly way: Way;
  readonly load: Load;
  /** Leaves out the wait for the end of what drains, which takes long calls with it two minutes later, and repetitions. */
  readonly short: boolean;
}

/** Something that is done to the cluster under load. */
export interface Fault extends Tolerance {
  readonly name: string;
  /** Puts something else there before the fault, and ours back after it. Short runs leave out such faults. */
  readonly comparison?: { begin(): Promise<void>; end(): Promise<void> };
  /** Resolves when the cluster is whole again. */
  commit(scene: Scene): Promise<void>;
}
