import { Attempts, type RoutingOptions } from './attempts.ts';
import type { Dial } from './dial.ts';
import { RetryBudget } from './retry-budget.ts';
import { Suspects } from './suspects.ts';

/**
 * The gateway's Dial: chooses a session, dials through its hub, and tries another while nothing of the destination was
 * reached: at once when an attempt failed, and beside an attempt that is not acknowledged in time.
 */
export function routed(options: RoutingOptions, suspects: Suspects = new Suspects()): Dial {
  const routing = { ...options, suspects, budget: new RetryBudget() };
  return (request) => {
    routing.budget.earn();
    return new Attempts(request, routing).run();
  };
}
