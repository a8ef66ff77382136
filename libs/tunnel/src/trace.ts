import type { DialRequest } from './dial.ts';
import type { DialOutcome } from './events.ts';

export type DialSpanName = 'gateway.dial' | 'hub.dial' | 'agent.dial';

/** A span of a dial, from the request to the answer. */
export interface DialSpan {
  /** What the next hop is to continue from; what came in when nothing traces. */
  readonly traceparent: string | undefined;
  end(outcome: DialOutcome): void;
}

/** The one thing the core asks of tracing; OpenTelemetry stands behind it in @isthmus/telemetry. */
export interface DialTracer {
  start(name: DialSpanName, dial: DialRequest): DialSpan;
}

/** Passes the caller's context on and records nothing. */
export const noTracer: DialTracer = {
  start: (_name, dial) => ({ traceparent: dial.traceparent, end() {} }),
};
