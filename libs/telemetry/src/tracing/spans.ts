import type { DialOutcome, DialRequest, DialSpan, DialSpanName, DialTracer } from '@isthmus/tunnel';
import {
  type Attributes,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import { formatTraceparent, parseTraceparent } from './traceparent.ts';

/**
 * Kinds by the semantic conventions: gateway and hub each answer a request that came from another program and are SERVER.
 * The agent makes the plane's one connection outwards, to what `server.address` names, and is CLIENT. A kind does not change
 * where gateway and hub share a process, so that one query finds the same spans in both ways to run a plane.
 */
const KINDS: Readonly<Record<DialSpanName, SpanKind>> = {
  'gateway.dial': SpanKind.SERVER,
  'hub.dial': SpanKind.SERVER,
  'agent.dial': SpanKind.CLIENT,
};

/** Dials as OpenTelemetry spans. */
export function spanTracer(tracer: Tracer): DialTracer {
  return {
    start(name, dial) {
      const parent = dial.traceparent === undefined ? undefined : parseTraceparent(dial.traceparent);
      const context = parent ? trace.setSpanContext(ROOT_CONTEXT, parent) : ROOT_CONTEXT;
      const span = tracer.startSpan(name, { kind: KINDS[name], attributes: requestAttributes(dial) }, context);
      return dialSpan(span);
    },
  };
}

function dialSpan(span: Span): DialSpan {
  return {
    traceparent: formatTraceparent(span.spanContext()),
    end(outcome) {
      // False for a span that is not sampled: most of them, where sampling is on at all.
      if (span.isRecording()) describeEnd(span, outcome);
      span.end();
    },
  };
}

function describeEnd(span: Span, { error, reason, agentId, sessionId, hubId, timing }: DialOutcome): void {
  span.setAttributes(
    known({
      'isthmus.agent.id': agentId,
      'isthmus.session.id': sessionId,
      'isthmus.hub.id': hubId,
      'isthmus.dial.dns_ms': timing?.dnsMs,
      'isthmus.dial.connect_ms': timing?.connectMs,
      'isthmus.dial.failure': reason,
      'error.type': error?.code,
    }),
  );
  if (error) span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
}

function requestAttributes({ id, tenant, destination, session, caller }: DialRequest): Attributes {
  return known({
    'server.address': destination.host,
    'server.port': destination.port,
    'network.transport': 'tcp',
    'isthmus.dial.id': id,
    'isthmus.tenant': tenant,
    'isthmus.session.id': session,
    'isthmus.caller.via': caller?.via,
    'isthmus.caller.identity': caller?.identity,
  });
}

function known(attributes: Record<string, string | number | undefined>): Attributes {
  return Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined));
}
