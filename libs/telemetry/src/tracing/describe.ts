import { isIP } from 'node:net';
import {
  type AttemptRecord,
  type Caller,
  type DialOutcome,
  type DialRequest,
  type DialSpanName,
  type DialStep,
  type StepSpanName,
  type TunnelInfo,
  type TunnelOutcome,
  upstreamReason,
} from '@isthmus/tunnel';
import { type Span, SpanStatusCode } from '@opentelemetry/api';
import { type AttributeName, put } from './attributes.ts';

export function describeDial(span: Span, name: DialSpanName, dial: DialRequest, outcome: DialOutcome): void {
  const { destination } = dial;
  const { error, failure, agentId, sessionId = dial.session, hubId } = outcome;
  belongs(span, dial);
  put(span, 'server.address', destination.host);
  put(span, 'server.port', destination.port);
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

export function describeAttempt(span: Span, dial: DialRequest, attempt: AttemptRecord, number: number): void {
  belongs(span, dial);
  for (const [name, value] of attemptValues(attempt, number)) put(span, name, value);
  const { error } = attempt;
  if (error) fail(span, dial, error.code, error.message);
}

/** Returns what is recorded about an attempt, on its own span or as an event of a kept dial. */
export function attemptValues(attempt: AttemptRecord, number: number): [name: AttributeName, value: string | number][] {
  return [
    ['isthmus.attempt.kind', attempt.kind],
    ['isthmus.attempt.number', number],
    ['isthmus.attempt.outcome', attempt.outcome],
    ['isthmus.agent.id', attempt.agentId],
    ['isthmus.session.id', attempt.sessionId],
    ['isthmus.hub.id', attempt.hubId],
  ];
}

export function describeStep(span: Span, name: StepSpanName, dial: DialRequest, { error, peer }: DialStep): void {
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

export function describeTunnel(span: Span, tunnel: TunnelInfo, { closedBy, error }: TunnelOutcome): void {
  const { dial, agentId, sessionId, hubId, up, down, resumable } = tunnel;
  belongs(span, dial);
  put(span, 'server.address', dial.destination.host);
  put(span, 'server.port', dial.destination.port);
  put(span, 'isthmus.agent.id', agentId);
  put(span, 'isthmus.session.id', sessionId);
  put(span, 'isthmus.hub.id', hubId);
  put(span, 'isthmus.tunnel.up_bytes', up);
  put(span, 'isthmus.tunnel.down_bytes', down);
  put(span, 'isthmus.tunnel.moves', resumable?.moves || undefined);
  put(span, 'isthmus.tunnel.closed_by', closedBy);
  if (!error) return;
  put(span, 'error.type', (error as NodeJS.ErrnoException).code ?? error.name);
  span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
}

function belongs(span: Span, { id, tenant }: DialRequest): void {
  put(span, 'isthmus.tenant', tenant);
  put(span, 'isthmus.dial.id', id);
}

/** Records an error, unless nobody waits for the answer any more. A faster attempt or a caller that left is not a failure here. */
function fail(span: Span, { signal }: DialRequest, type: string, message: string): void {
  if (signal.aborted) return;
  put(span, 'error.type', type);
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}
