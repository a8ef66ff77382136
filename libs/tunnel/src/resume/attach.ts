import { type Deadlines, Silence } from '../deadlines.ts';
import { type Attached, type AttachRequest, DialAbort, type NextHop } from '../dial.ts';
import { asDialError } from '../errors.ts';
import { type Observation, observedAttach } from '../observe.ts';
import type { AgentSession, AgentSessions } from './processes.ts';

/** How the tunnels of a gateway find another session. */
export interface AgentRoutes {
  readonly directory: AgentSessions;
  /** Returns the way to a hub. Undefined if there is none at the moment. */
  readonly nextHop: (hubId: string) => Pick<NextHop, 'attach'> | undefined;
  /** Hubs and sessions that did not answer in time. */
  readonly suspects: { accuse(tenant: string, ...ids: string[]): void };
  /** Yields the sessions to one process of an agent, best first, then those that no tunnel can use, without a rank. */
  route(to: {
    readonly tenant: string;
    readonly host: string;
    readonly agent: string;
    readonly instance: string;
    readonly tried: ReadonlySet<string>;
  }): Iterable<{ readonly session: AgentSession; readonly rank?: unknown }>;
}

interface AttachThroughOptions extends Pick<AgentRoutes, 'directory' | 'suspects'>, Pick<Observation, 'tracer'> {
  readonly deadlines: Deadlines;
  /** How long the session may be silent, and the round trips of its path, in milliseconds. */
  readonly silentMs: number;
  /** Whether the deadline is this gateway's own, so that a session which lets it pass is accused too. A caller may set its own as short as it likes. */
  readonly ownDeadline: boolean;
}

/**
 * Attaches through one session. One that is silent is given up and accused, and its hub; one that has ended is forgotten.
 * @param request names the session
 * @throws DialError; the tunnel then stays as it was
 */
export async function attachThrough(
  { attach }: Pick<NextHop, 'attach'>,
  { hubId }: Pick<AgentSession['record'], 'hubId'>,
  request: AttachRequest,
  { directory, suspects, tracer, deadlines, silentMs, ownDeadline }: AttachThroughOptions,
): Promise<Attached> {
  const signal = new DialAbort();
  const abandon = () => signal.abort(request.signal.reason);
  request.signal.addEventListener('abort', abandon);
  if (request.signal.aborted) abandon();
  let silent = false;
  const giveUp = () => {
    silent = true;
    signal.abort();
  };
  const silence = new Silence(silentMs, giveUp, deadlines);
  const asked: AttachRequest = {
    ...request,
    signal,
    underWay(roundTripMs) {
      silence.underWay(roundTripMs);
      request.underWay?.(roundTripMs);
    },
  };
  const { tenant, session: sessionId } = request;
  const observed = observedAttach(attach, { tracer }, 'gateway.attach', { sessionId, hubId });
  try {
    return await observed(asked);
  } catch (thrown) {
    const error = asDialError(thrown);
    if (silent || (ownDeadline && error.expired))
      suspects.accuse(tenant, sessionId, ...(hubId === directory.ownHub ? [] : [hubId]));
    if (error.code === 'destination_unavailable' && error.retryable) directory.forget(sessionId);
    throw error;
  } finally {
    silence.heard();
    request.signal.removeEventListener('abort', abandon);
  }
}
