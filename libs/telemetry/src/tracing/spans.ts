import { isIP } from 'node:net';
import {
  type AttemptRecord,
  type Caller,
  type DialError,
  type DialOutcome,
  type DialRequest,
  type DialSpan,
  type DialSpanName,
  type DialStep,
  type DialTracer,
  type StepSpanName,
  type TunnelInfo,
  type TunnelOutcome,
  upstreamReason,
} from '@isthmus/tunnel';
import {
  type Context,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  type SpanOptions,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import { TELEMETRY } from '../defaults.ts';
import { parseTraceparent } from '../events.ts';

let offset = Date.now() - performance.now();

/**
 * Converts a time of `performance.now()` to milliseconds since the epoch, with fractions. All spans of the process share one offset.
 * If each span took its start from Date.now(), a child that lasts 0.3 ms would sometimes start before its parent.
 */
function sinceEpoch(time: number): number {
  const before = performance.now();
  const now = Date.now() - before;
  // If the system clock was set, follow it. If the process was interrupted between the two readings, they are useless.
  if (performance.now() - before < 1 && Math.abs(now - offset) > TELEMETRY.clockDriftMs) offset = now;
  return offset + time;
}

/** Every attribute of a span or an event, as docs/TRACES.md lists them. Ours begin with `isthmus.`. */
export const ATTRIBUTES = [
  'client.address',
  'client.port',
  'dns.question.name',
  'error.type',
  'network.peer.address',
  'network.peer.port',
  'network.transport',
  'network.type',
  'server.address',
  'server.port',
  'tls.client.server_name',
  'isthmus.agent.id',
  'isthmus.attempt.kind',
  'isthmus.attempt.ms',
  'isthmus.attempt.number',
  'isthmus.attempt.outcome',
  'isthmus.caller.identity',
  'isthmus.caller.via',
  'isthmus.dial.agent_ms',
  'isthmus.dial.attempts',
  'isthmus.dial.connect_ms',
  'isthmus.dial.dns_ms',
  'isthmus.dial.failure',
  'isthmus.dial.hub_ms',
  'isthmus.dial.id',
  'isthmus.dial.kept',
  'isthmus.dial.parked_ms',
  'isthmus.hub.id',
  'isthmus.session.id',
  'isthmus.tenant',
  'isthmus.tunnel.closed_by',
  'isthmus.tunnel.cut',
  'isthmus.tunnel.down_bytes',
  'isthmus.tunnel.moves',
  'isthmus.tunnel.up_bytes',
] as const;

type AttributeName = (typeof ATTRIBUTES)[number];

/** Sets one attribute, to avoid creating an object with all attributes for every span. */
function put(span: Span, name: AttributeName, value: string | number | undefined): void {
  if (value !== undefined) span.setAttribute(name, value);
}

function describeDial(span: Span, name: DialSpanName, dial: DialRequest, outcome: DialOutcome): void {
  const { error, failure, agentId, sessionId = dial.session, hubId } = outcome;
  belongs(span, dial);
  leads(span, dial);
  if (name === 'gateway.dial') describeAtGateway(span, dial, outcome);
  put(span, 'isthmus.agent.id', agentId);
  put(span, 'isthmus.session.id', sessionId);
  put(span, 'isthmus.hub.id', hubId || undefined);
  put(span, 'isthmus.dial.failure', failure && upstreamReason(failure));
  if (error) fail(span, dial, error.code, error.message);
}

/** Adds what only the gateway knows. A hub in the same process sees the same request, but must not add this again. */
function describeAtGateway(span: Span, { caller, log }: DialRequest, { timing }: DialOutcome): void {
  if (caller) describeCaller(span, caller);
  put(span, 'isthmus.dial.attempts', log?.attempts.length);
  put(span, 'isthmus.dial.parked_ms', log?.parkedMs || undefined);
  put(span, 'isthmus.dial.dns_ms', timing?.dnsMs);
  put(span, 'isthmus.dial.connect_ms', timing?.connectMs);
  put(span, 'isthmus.dial.agent_ms', timing?.agentMs);
  put(span, 'isthmus.dial.hub_ms', timing?.hubMs);
}

/** Only TCP has an address. All we know about a peer on a unix socket is that it may open the socket. */
function describeCaller(span: Span, { via, identity, remote = '' }: Caller): void {
  const at = remote.lastIndexOf(':');
  if (at >= 0) {
    put(span, 'client.address', remote.slice(0, at));
    put(span, 'client.port', Number(remote.slice(at + 1)));
  }
  put(span, 'isthmus.caller.via', via);
  put(span, 'isthmus.caller.identity', identity);
}

function describeAttempt(span: Span, dial: DialRequest, attempt: AttemptRecord, number: number): void {
  belongs(span, dial);
  for (const [name, value] of attemptValues(attempt, number)) put(span, name, value);
  const { error } = attempt;
  if (error) fail(span, dial, error.code, error.message);
}

/** Returns what is recorded about an attempt, on its own span or as an event of a kept dial. */
function attemptValues(attempt: AttemptRecord, number: number): [name: AttributeName, value: string | number][] {
  return [
    ['isthmus.attempt.kind', attempt.kind],
    ['isthmus.attempt.number', number],
    ['isthmus.attempt.outcome', attempt.outcome],
    ['isthmus.agent.id', attempt.agentId],
    ['isthmus.session.id', attempt.sessionId],
    ['isthmus.hub.id', attempt.hubId],
  ];
}

function describeStep(span: Span, name: StepSpanName, dial: DialRequest, { error, peer }: DialStep): void {
  belongs(span, dial);
  if (name === 'agent.dns') put(span, 'dns.question.name', dial.destination.host);
  else put(span, 'network.transport', 'tcp');
  if (peer) {
    const family = isIP(peer.address);
    put(span, 'network.type', family === 0 ? undefined : `ipv${family}`);
    put(span, 'network.peer.address', peer.address);
    put(span, 'network.peer.port', peer.port);
  }
  if (error) fail(span, dial, error.code, error.message);
}

function describeTunnel(span: Span, tunnel: TunnelInfo, { how, by, error }: TunnelOutcome): void {
  const { role, dial, agentId, sessionId, hubId, up, down, resumable } = tunnel;
  if (role === 'api-server') describeClient(span, dial);
  else {
    belongs(span, dial);
    put(span, 'isthmus.agent.id', agentId);
    put(span, 'isthmus.session.id', sessionId);
  }
  leads(span, dial);
  put(span, 'isthmus.hub.id', hubId);
  put(span, 'isthmus.tunnel.up_bytes', up);
  put(span, 'isthmus.tunnel.down_bytes', down);
  put(span, 'isthmus.tunnel.moves', resumable?.moves || undefined);
  put(span, 'isthmus.tunnel.closed_by', how === 'cut' ? 'plane' : by);
  put(span, 'isthmus.tunnel.cut', how === 'cut' ? by : undefined);
  if (!error) return;
  put(span, 'error.type', (error as NodeJS.ErrnoException).code ?? error.name);
  span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
}

function describeClient(span: Span, dial: DialRequest): void {
  const { caller } = dial;
  belongs(span, dial);
  if (!caller) return;
  describeCaller(span, caller);
  put(span, 'tls.client.server_name', caller.serverName);
}

function belongs(span: Span, { id, tenant }: DialRequest): void {
  put(span, 'isthmus.tenant', tenant);
  put(span, 'isthmus.dial.id', id);
}

function leads(span: Span, { destination: { host, port } }: DialRequest): void {
  put(span, 'server.address', host);
  put(span, 'server.port', port);
}

/** Records an error, unless nobody waits for the answer any more. A faster attempt or a caller that left is not a failure here. */
function fail(span: Span, { signal }: DialRequest, type: string, message: string): void {
  if (signal.aborted) return;
  put(span, 'error.type', type);
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}

/** A gateway's dial that has ended and was not sampled. */
export interface UnsampledDial {
  /** The ids under which logs and the next hops know it. */
  readonly span: SpanContext;
  readonly parent: Context;
  /** Milliseconds of `performance.now()`. */
  readonly start: number;
  readonly dial: DialRequest;
  readonly outcome: DialOutcome;
}

export type KeepDial = (dial: UnsampledDial) => void;

/** Starts a span with given ids, which are already in use, and exports it whatever the sampler says. */
export type StartAs = (ids: SpanContext, name: string, options: SpanOptions, parent: Context) => Span;

/**
 * Exports dials that were not sampled if they failed or were slow, since somebody will ask about them. Each becomes one span with
 * everything that the gateway knows and each attempt as an event, under the ids that the dial had from the start.
 * @param slowMs a dial that took longer than this, in milliseconds, is slow
 */
export function keepDials(startAs: StartAs, slowMs: number): KeepDial {
  return ({ span: ids, parent, start, dial, outcome }) => {
    if (!outcome.error && outcome.ms <= slowMs) return;
    const span = startAs(ids, 'gateway.dial', spanOptions('gateway.dial', start), parent);
    describeDial(span, 'gateway.dial', dial, outcome);
    put(span, 'isthmus.dial.kept', outcome.error ? 'failed' : 'slow');
    for (const [index, attempt] of (dial.log?.attempts ?? []).entries()) {
      const values = attemptValues(attempt, index + 1);
      const { ms, error } = attempt;
      if (ms !== undefined) values.push(['isthmus.attempt.ms', ms]);
      if (error) values.push(['error.type', error.code]);
      span.addEvent('gateway.attempt', Object.fromEntries(values), sinceEpoch(attempt.start));
    }
    span.end(sinceEpoch(start + outcome.ms));
  };
}

export type SpanName = DialSpanName | StepSpanName | 'gateway.attempt' | 'gateway.tunnel' | 'hub.api-server';

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
  'hub.api-server': SpanKind.SERVER,
  'hub.dial': SpanKind.SERVER,
  'hub.attach': SpanKind.SERVER,
  'agent.dial': SpanKind.CLIENT,
  'agent.dns': SpanKind.INTERNAL,
  'agent.connect': SpanKind.INTERNAL,
};

/** Records dials and tunnels as OpenTelemetry spans. */
export interface SpanTracer extends DialTracer {
  /** Records a gateway's tunnel that has ended, or a client's connection to its API server. */
  tunnel(tunnel: TunnelInfo, outcome: TunnelOutcome, ms: number): void;
  /** Records a client's connection that has not reached its API server. */
  unreached(dial: DialRequest, error: DialError, ms: number): void;
}

/** @param keep called for a gateway's dial that is not sampled */
export function spanTracer(tracer: Tracer, keep?: KeepDial): SpanTracer {
  const begin = (name: SpanName, { traceparent }: DialRequest, start: number): { span: Span; parent: Context } => {
    const parent = contextOf(traceparent);
    return { span: tracer.startSpan(name, spanOptions(name, start), parent), parent };
  };
  const ended = (name: SpanName, dial: DialRequest, ms: number, describe: (span: Span) => void) => {
    const end = performance.now();
    const { span } = begin(name, dial, end - ms);
    if (span.isRecording()) describe(span);
    span.end(sinceEpoch(end));
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
    tunnel(tunnel, outcome, ms) {
      const name = tunnel.role === 'api-server' ? 'hub.api-server' : 'gateway.tunnel';
      ended(name, tunnel.dial, ms, (span) => describeTunnel(span, tunnel, outcome));
    },
    unreached(dial, error, ms) {
      ended('hub.api-server', dial, ms, (span) => {
        describeClient(span, dial);
        leads(span, dial);
        fail(span, dial, error.code, error.message);
      });
    },
  };
}

export function spanOptions(name: SpanName, start: number): SpanOptions {
  return { kind: KINDS[name], startTime: sinceEpoch(start) };
}

export function contextOf(traceparent: string | undefined): Context {
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

export function formatTraceparent({ traceId, spanId, traceFlags }: SpanContext): string {
  return `00-${traceId}-${spanId}-${(traceFlags & 0xff).toString(16).padStart(2, '0')}`;
}
