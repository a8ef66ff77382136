import type { Dial } from '../dial/dial.ts';
import type { Observation } from '../events/observe.ts';
import type { Directory } from '../replica/directory.ts';
import type { RetryBudget } from './retry-budget.ts';
import type { Strategy } from './strategies.ts';
import type { Suspects } from './suspects.ts';

export interface RoutingOptions {
  readonly directory: Directory;
  readonly strategies: readonly Strategy[];
  /** The gateway's own zone. */
  readonly zone: string;
  /** Returns how to reach a hub: its Dial if it is in this process, or a link to it. Undefined if there is no way at the moment. */
  readonly hub: (hubId: string) => Dial | undefined;
  /** How long a dial waits in total, in milliseconds, for a session to arrive while there is none to try. */
  readonly parkTimeout: number;
  readonly observation: Observation;
}

/** What all dials of a gateway share. */
export interface Routing extends RoutingOptions {
  /** For attempts after one that failed. */
  readonly budget: RetryBudget;
  /** For attempts beside one that is silent. Hedges must not use up the retries that the death of a hub needs. */
  readonly hedges: RetryBudget;
  readonly suspects: Suspects;
}
