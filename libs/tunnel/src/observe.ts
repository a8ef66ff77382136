import type { Attach, Attached, AttachRequest, AttemptRecord, DialRequest } from './dial.ts';
import { asDialError, type DialError, SessionLost } from './errors.ts';
import type { DialOutcome, PlaneEvents } from './events.ts';

export type DialSpanName = 'gateway.dial' | 'gateway.attach' | 'hub.dial' | 'hub.attach' | 'agent.dial';
export type StepSpanName = 'agent.dns' | 'agent.connect';

/** A running span. */
export interface DialSpan<Outcome = DialOutcome> {
  /** The context for the next hop. Unset: the incoming one. */
  readonly traceparent: string | undefined;
  end(outcome: Outcome): void;
}

/** A finished part of a dial. Times are milliseconds of `performance.now()` of this process. */
export interface DialStep {
  readonly start: number;
  readonly end: number;
  readonly error?: DialError;
  /** The address, after DNS, that the agent connected to or failed to connect to. */
  readonly peer?: { readonly address: string; readonly port: number };
}

/** All that the core needs of tracing. @isthmus/telemetry implements it with OpenTelemetry. */
export interface DialTracer {
  /** Starts the span of a dial or an attach, which lasts from the request to the answer. */
  start(name: DialSpanName, asked: DialRequest | AttachRequest): DialSpan;
  /** Starts the span of one attempt of a gateway's dial, through one session. @param number 1 for the first */
  attempt(dial: DialRequest, attempt: AttemptRecord, number: number): DialSpan<AttemptRecord>;
  step(name: StepSpanName, dial: DialRequest, step: DialStep): void;
}

/** Puts a dial or an attach into the span's trace context, for the next hop. */
export function enterSpan(request: Pick<DialRequest, 'traceparent'>, { traceparent }: DialSpan<never>): void {
  if (traceparent !== undefined) request.traceparent = traceparent;
}

export interface Observation {
  readonly events: PlaneEvents;
  /** Unset: dials stay in their callers' contexts, and nothing is recorded. */
  readonly tracer?: DialTracer | undefined;
}

/**
 * Wraps an Attach so that it is traced. No event tells of it: the gateway's half does that.
 * @param through the session, if it is known before
 */
export function observedAttach(
  attach: Attach,
  { tracer }: Pick<Observation, 'tracer'>,
  name: 'hub.attach' | 'gateway.attach' = 'hub.attach',
  through: Pick<DialOutcome, 'sessionId' | 'hubId'> = {},
): Attach {
  return async (request) => {
    const start = performance.now();
    const span = tracer?.start(name, request);
    if (span) enterSpan(request, span);
    let attached: Attached | undefined;
    try {
      attached = await attach(request);
      const { agentId, sessionId, hubId } = attached;
      span?.end({ ms: performance.now() - start, agentId, sessionId, hubId });
      return attached;
    } catch (thrown) {
      const error = asDialError(thrown);
      // Nobody gets the stream of an answer that could not be reported. The tunnel goes on elsewhere.
      if (attached) attached.end.abort(new SessionLost(error.message, { cause: thrown }));
      else span?.end({ ms: performance.now() - start, error, ...through });
      throw thrown;
    }
  };
}
