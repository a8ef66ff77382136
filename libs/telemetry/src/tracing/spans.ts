import type {
  AttemptRecord,
  DialOutcome,
  DialRequest,
  DialSpan,
  DialSpanName,
  DialTracer,
  StepSpanName,
  TunnelInfo,
  TunnelOutcome,
} from '@isthmus/tunnel';
import {
  type Context,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  type SpanOptions,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import { sinceEpoch } from './clock.ts';
import { describeAttempt, describeDial, describeStep, describeTunnel } from './describe.ts';
import type { KeepDial } from './kept.ts';
import { formatTraceparent, parseTraceparent } from './traceparent.ts';

export type SpanName = DialSpanName | StepSpanName | 'gateway.attempt' | 'gateway.tunnel';

/**
 * Span kinds by the semantic conventions. Gateway and hub each answer a request from another program, so they are SERVER. The agent
 * makes the plane's only outgoing connection, to `server.address`, so it is CLIENT. A gateway's attempt is CLIENT, because it calls a
 * hub. The kinds stay the same if gateway and hub share a process, so that one query works for both ways to run a plane.
 */
export const KINDS: Readonly<Record<SpanName, SpanKind>> = {
  'gateway.dial': SpanKind.SERVER,
  'gateway.attempt': SpanKind.CLIENT,
  'gateway.attach': SpanKind.CLIENT,
  'gateway.tunnel': SpanKind.INTERNAL,
  'hub.dial': SpanKind.SERVER,
  'hub.attach': SpanKind.SERVER,
  'agent.dial': SpanKind.CLIENT,
  'agent.dns': SpanKind.INTERNAL,
  'agent.connect': SpanKind.INTERNAL,
};

/** Records dials and tunnels as OpenTelemetry spans. */
export interface SpanTracer extends DialTracer {
  /** Records a gateway's tunnel that has ended. */
  tunnel(tunnel: TunnelInfo, outcome: TunnelOutcome): void;
}

/** @param keep called for a gateway's dial that is not sampled */
export function spanTracer(tracer: Tracer, keep?: KeepDial): SpanTracer {
  const begin = (name: SpanName, { traceparent }: DialRequest, start: number): { span: Span; parent: Context } => {
    const parent = contextOf(traceparent);
    return { span: tracer.startSpan(name, spanOptions(name, start), parent), parent };
  };
  return {
    start(name, dial) {
      const start = performance.now();
      const { span, parent } = begin(name, dial, start);
      return running<DialOutcome>(span, (outcome) => {
        if (span.isRecording()) describeDial(span, name, dial, outcome);
        else if (name === 'gateway.dial') keep?.({ span: span.spanContext(), parent, start, dial, outcome });
      });
    },
    attempt(dial, attempt, number) {
      const { span } = begin('gateway.attempt', dial, attempt.start);
      return running<AttemptRecord>(span, () => {
        if (span.isRecording()) describeAttempt(span, dial, attempt, number);
      });
    },
    step(name, dial, step) {
      const { span } = begin(name, dial, step.start);
      if (span.isRecording()) describeStep(span, name, dial, step);
      span.end(sinceEpoch(step.end));
    },
    tunnel(tunnel, outcome) {
      const end = performance.now();
      const { span } = begin('gateway.tunnel', tunnel.dial, end - outcome.ms);
      if (span.isRecording()) describeTunnel(span, tunnel, outcome);
      span.end(sinceEpoch(end));
    },
  };
}

export function spanOptions(name: SpanName, start: number): SpanOptions {
  return { kind: KINDS[name], startTime: sinceEpoch(start) };
}

function contextOf(traceparent: string | undefined): Context {
  const parent = traceparent === undefined ? undefined : parseTraceparent(traceparent);
  return parent ? trace.setSpanContext(ROOT_CONTEXT, parent) : ROOT_CONTEXT;
}

function running<Outcome>(span: Span, describeEnd: (outcome: Outcome) => void): DialSpan<Outcome> {
  return {
    traceparent: formatTraceparent(span.spanContext()),
    end(outcome) {
      describeEnd(outcome);
      span.end(sinceEpoch(performance.now()));
    },
  };
}
