import type { Scope } from '../harness/index.ts';
import type { Check } from './checks/check.ts';
import type { Fault } from './faults/fault.ts';
import type { Kubernetes } from './kubernetes.ts';

/** What is prepared with. */
export interface Ground {
  readonly kubernetes: Kubernetes;
  /** Where it may write. */
  readonly directory: string;
  /** Of the machine's control groups. */
  readonly group: string;
  /** The archive of Isthmus' image. */
  readonly image: string;
  /** What is started ends with the cluster. */
  readonly scope: Scope;
}

/** What a way needs, and what is then done over it, in this order. */
export interface Plan {
  prepare(ground: Ground): Promise<void>;
  readonly steps: readonly (Check | Fault)[];
}
