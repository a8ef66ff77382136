import type { Dial, DialRequest, Established } from './dial.ts';
import type { Directory, Route } from './directory.ts';
import { asDialError, DialError } from './errors.ts';
import type { Strategy } from './strategies.ts';

export interface RoutingOptions {
  readonly directory: Directory;
  readonly strategies: readonly Strategy[];
  /** The gateway's own zone. */
  readonly zone: string;
  /** The way to a hub: its own Dial in this process, or a link to it. Undefined while there is none. */
  readonly hub: (hubId: string) => Dial | undefined;
}

/** After this many sessions a dial gives up: what failed so often is not the session's fault. */
const MAX_ATTEMPTS = 5;

/**
 * The gateway's Dial: chooses a session, dials through its hub, and tries another while nothing of the destination was
 * reached. An answer that came from the destination is final.
 */
export function routed(options: RoutingOptions): Dial {
  const { directory, strategies, zone, hub } = options;
  const reachable = (hubId: string) => hub(hubId) !== undefined;
  return async (request) => {
    const excluded = new Set<string>();
    let last: DialError | undefined;
    while (excluded.size < MAX_ATTEMPTS && !request.signal.aborted) {
      const { tenant, destination } = request;
      // Passed over, not tried: of many sessions on a hub that is gone, each would cost one of the attempts.
      const choice = { tenant, host: destination.host, strategies, zone, excluded };
      const route = directory.choose({ ...choice, reachable });
      if (!route) {
        const lost = directory.choose(choice);
        if (lost) last ??= unreachable(lost.record.hubId);
        break;
      }
      excluded.add(route.record.sessionId);
      try {
        return await through(route, request, options);
      } catch (thrown) {
        last = asDialError(thrown);
        if (!last.retryable) throw last;
        if (last.code === 'destination_unavailable') directory.forget(route.record.sessionId);
      }
    }
    if (last && last.code !== 'destination_unavailable') throw last;
    // Upstream's words, which operators search for.
    throw new DialError('destination_unavailable', 'No agent available', { cause: last });
  };
}

function unreachable(hubId: string): DialError {
  return new DialError('connection_terminated', `hub ${hubId} cannot be reached`, { retryable: true });
}

async function through(route: Route, request: DialRequest, { hub }: RoutingOptions): Promise<Established> {
  const { hubId, sessionId } = route.record;
  const dial = hub(hubId);
  if (!dial) throw unreachable(hubId);
  route.open++;
  try {
    const established = await dial({ ...request, session: sessionId });
    const { stream } = established.end;
    const close = () => {
      route.open--;
    };
    if (stream.closed) close();
    else stream.once('close', close);
    return established;
  } catch (error) {
    route.open--;
    throw error;
  }
}
