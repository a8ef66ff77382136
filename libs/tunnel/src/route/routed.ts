import type { Dial } from '../dial/dial.ts';
import { Attempts } from './attempts.ts';
import { RetryBudget } from './retry-budget.ts';
import type { RoutingOptions } from './routing.ts';
import { Suspects } from './suspects.ts';

/**
 * The gateway's Dial: chooses a session and dials through its hub. As long as nobody has answered for the destination it tries
 * another session: at once when an attempt fails, and in parallel when an attempt is not acknowledged in time.
 */
export function routed(options: RoutingOptions, suspects: Suspects = new Suspects()): Dial {
  const routing = { ...options, suspects, budget: new RetryBudget(), hedges: new RetryBudget() };
  return (request) => {
    routing.budget.earn(request.tenant);
    routing.hedges.earn(request.tenant);
    return new Attempts(request, routing).run();
  };
}
