import { isIP } from 'node:net';
import type {
  AttemptRecord,
  DialOutcome,
  DialRequest,
  DialStep,
  StepSpanName,
  TunnelInfo,
  TunnelOutcome,
} from '@isthmus/tunnel';
import { type Span, SpanStatusCode } from '@opentelemetry/api';
import { describe, type Values } from './attributes.ts';

export function describeDial(span: Span, dial: DialRequest, outcome: DialOutcome): void {
  const { destination, caller, story } = dial;
  const { error, reason, agentId, sessionId = dial.session, hubId, timing } = outcome;
  describe(span, {
    ...whose(dial),
    'server.address': destination.host,
    'server.port': destination.port,
    'network.transport': 'tcp',
    ...clientOf(caller?.remote),
    'isthmus.caller.via': caller?.via,
    'isthmus.caller.identity': caller?.identity,
    'isthmus.agent.id': agentId,
    'isthmus.session.id': sessionId,
    'isthmus.hub.id': hubId || undefined,
    'isthmus.dial.attempts': story?.attempts.length,
    'isthmus.dial.parked_ms': story?.parkedMs || undefined,
    'isthmus.dial.dns_ms': timing?.dnsMs,
    'isthmus.dial.connect_ms': timing?.connectMs,
    'isthmus.dial.agent_ms': timing?.agentMs,
    'isthmus.dial.hub_ms': timing?.hubMs,
    'isthmus.dial.failure': reason,
  });
  if (error) fail(span, dial, error.code, error.message);
}

/** What is said of an attempt, on its span or as an event of a dial that was kept. */
export function attemptValues({ kind, sessionId, agentId, hubId, outcome }: AttemptRecord, number: number): Values {
  return {
    'isthmus.attempt.kind': kind,
    'isthmus.attempt.number': number,
    'isthmus.attempt.outcome': outcome,
    'isthmus.agent.id': agentId,
    'isthmus.session.id': sessionId,
    'isthmus.hub.id': hubId,
  };
}

export function describeAttempt(span: Span, dial: DialRequest, attempt: AttemptRecord, number: number): void {
  describe(span, { ...whose(dial), ...attemptValues(attempt, number) });
  const { error } = attempt;
  if (error) fail(span, dial, error.code, error.message);
}

export function describeStep(span: Span, name: StepSpanName, dial: DialRequest, { error, peer }: DialStep): void {
  const family = isIP(peer?.address ?? '');
  const values: Values =
    name === 'agent.dns'
      ? { 'dns.question.name': dial.destination.host }
      : {
          'network.transport': 'tcp',
          'network.type': family === 0 ? undefined : `ipv${family}`,
          'network.peer.address': peer?.address,
          'network.peer.port': peer?.port,
        };
  describe(span, { ...whose(dial), ...values });
  if (error) fail(span, dial, error.code, error.message);
}

export function describeTunnel(span: Span, tunnel: TunnelInfo, { closedBy, error }: TunnelOutcome): void {
  const { dial, agentId, sessionId, hubId, up, down } = tunnel;
  describe(span, {
    ...whose(dial),
    'server.address': dial.destination.host,
    'server.port': dial.destination.port,
    'isthmus.agent.id': agentId,
    'isthmus.session.id': sessionId,
    'isthmus.hub.id': hubId,
    'isthmus.tunnel.up_bytes': up,
    'isthmus.tunnel.down_bytes': down,
    'isthmus.tunnel.closed_by': closedBy,
  });
  if (!error) return;
  describe(span, { 'error.type': (error as NodeJS.ErrnoException).code ?? error.name });
  span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
}

function whose({ id, tenant }: DialRequest): Values {
  return { 'isthmus.tenant': tenant, 'isthmus.dial.id': id };
}

/** Only TCP has an address: all that is known of a peer of a unix socket is that it may open it. */
function clientOf(remote: string | undefined): Values {
  const at = remote?.lastIndexOf(':') ?? -1;
  return remote === undefined || at < 0
    ? {}
    : { 'client.address': remote.slice(0, at), 'client.port': Number(remote.slice(at + 1)) };
}

/** That nobody waits for an answer any more, because another attempt was faster or the caller has gone, is no error of what was asked. */
function fail(span: Span, { signal }: DialRequest, type: string, message: string): void {
  if (signal.aborted) return;
  describe(span, { 'error.type': type });
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}
