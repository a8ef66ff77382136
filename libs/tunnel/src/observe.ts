import type { Attach, AttachRequest, AttemptRecord, Dial, DialRequest, Established } from './dial.ts';
import { asDialError, type DialError, type DialTiming } from './errors.ts';
import type { DialFailure, DialOutcome, PlaneEvents, Role } from './events.ts';

export type DialSpanName = 'gateway.dial' | 'gateway.attach' | 'hub.dial' | 'hub.attach' | 'agent.dial';
export type StepSpanName = 'agent.dns' | 'agent.connect';

/** A running span. */
export interface DialSpan<Outcome = DialOutcome> {
  /** The context for the next hop; the incoming one if tracing is off. */
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

/** Passes the caller's context on and records nothing. */
export const noTracer: DialTracer = {
  start: (_name, dial) => passedOn(dial),
  attempt: passedOn,
  step() {},
};

function passedOn({ traceparent }: Pick<DialRequest, 'traceparent'>): DialSpan<unknown> {
  return { traceparent, end() {} };
}

/** Puts a dial or an attach into the span's trace context, for the next hop. */
export function enterSpan(request: Pick<DialRequest, 'traceparent'>, { traceparent }: DialSpan<never>): void {
  if (traceparent !== undefined) request.traceparent = traceparent;
}

export interface Observation {
  readonly events: PlaneEvents;
  readonly tracer: DialTracer;
}

/** Wraps a Dial so that it reports its start and its outcome, as events and as a span. The inner dial gets the span's context. */
export function observed(role: Role, dial: Dial, { events, tracer }: Observation): Dial {
  return async (request) => {
    const start = performance.now();
    const span = tracer.start(`${role}.dial`, request);
    enterSpan(request, span);
    events.emit('dial:start', role, request);
    const report = (outcome: DialOutcome) => {
      span.end(outcome);
      events.emit('dial:end', role, request, outcome);
    };
    let established: Established;
    try {
      established = await dial(request);
    } catch (thrown) {
      const error = asDialError(thrown);
      const ms = performance.now() - start;
      error.timing = timed(role, ms, error.timing);
      if (role === 'gateway') error.traceparent = request.traceparent;
      report({ ms, error, failure: failureOf(error, request), timing: error.timing });
      throw error;
    }
    const { agentId, sessionId, hubId, agentPrincipal } = established;
    const ms = performance.now() - start;
    const timing = timed(role, ms, established.timing);
    established.timing = timing;
    try {
      report({ ms, agentId, sessionId, hubId, timing, ...(agentPrincipal !== undefined && { agentPrincipal }) });
    } catch (thrown) {
      // A listener threw, which is not the dial's fault. Nobody will get the tunnel now.
      established.end.abort(thrown instanceof Error ? thrown : new Error(String(thrown)));
      throw thrown;
    }
    return established;
  };
}

/** Wraps a hub's Attach so that it is traced. No event tells of it: its gateway does that. */
export function observedAttach(attach: Attach, { tracer }: Pick<Observation, 'tracer'>): Attach {
  return async (request) => {
    const start = performance.now();
    const span = tracer.start('hub.attach', request);
    enterSpan(request, span);
    try {
      const attached = await attach(request);
      const { agentId, sessionId, hubId } = attached;
      span.end({ ms: performance.now() - start, agentId, sessionId, hubId });
      return attached;
    } catch (thrown) {
      span.end({ ms: performance.now() - start, error: asDialError(thrown) });
      throw thrown;
    }
  };
}

/** Adds this part's own time to the report that goes back to the caller. */
function timed(role: Role, ms: number, timing: DialTiming): DialTiming {
  if (role === 'gateway') return timing;
  return role === 'hub' ? { ...timing, hubMs: ms } : { ...timing, agentMs: ms };
}

function failureOf(error: DialError, request: DialRequest): DialFailure {
  if (error.expired) return 'expired';
  if (request.signal.aborted) return 'abandoned';
  if (error.code === 'destination_unavailable') return 'unavailable';
  if (error.code === 'connection_terminated') return 'terminated';
  return 'error';
}
