import { Attempts } from './attempts.ts';
import type { Dial, DialRequest } from './dial.ts';
import type { Directory } from './directory.ts';
import { RetryBudget } from './retry-budget.ts';
import type { Strategy } from './strategies.ts';
import { Suspects } from './suspects.ts';

export interface RoutingOptions {
  readonly directory: Directory;
  readonly strategies: readonly Strategy[];
  /** The gateway's own zone. */
  readonly zone: string;
  /** The way to a hub: its own Dial in this process, or a link to it. Undefined while there is none. */
  readonly hub: (hubId: string) => Dial | undefined;
  /** How long a dial of a tenant without any session waits for one, in milliseconds. */
  readonly parkTimeout: number;
}

/**
 * The gateway's Dial: chooses a session, dials through its hub, and tries another while nothing of the destination was
 * reached: at once when an attempt failed, and beside an attempt that is not acknowledged in time.
 */
export function routed(options: RoutingOptions): Dial {
  const shared = { ...options, budget: new RetryBudget(), suspects: new Suspects() };
  return async (request) => {
    shared.budget.earn();
    if (!options.directory.serves(request.tenant)) await arrival(request, options);
    return new Attempts(request, shared).run();
  };
}

/** An agent that restarts is back in a moment: waits for the tenant's first session, but not for long. */
function arrival({ tenant, signal, deadline }: DialRequest, { directory, parkTimeout }: RoutingOptions): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      giveUp();
      resolve();
    };
    const timer = setTimeout(done, Math.max(0, Math.min(parkTimeout, deadline - performance.now())));
    const giveUp = directory.onArrival(tenant, done);
    signal.addEventListener('abort', done, { once: true });
  });
}
