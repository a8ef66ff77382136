import type { Head, OutgoingHead } from '@isthmus/http2';
import {
  AttachRefused,
  callerName,
  checkName,
  DialAbort,
  DialError,
  type DialErrorCode,
  type DialRequest,
  type DialTiming,
  formatDestination,
  isDialErrorCode,
  NotAuthorised,
  parseDestination,
  type ResumeAnswer,
} from '@isthmus/tunnel';
import type { ServedDial } from '../dial/serve-dial.ts';
import { percentDecoded, percentEncoded, reasonOf } from '../head/percent.ts';
import { addResumeAnswer, addResumeRequest, readResumeAnswer, readResumeRequest } from './resume-head.ts';

/**
 * How HTTP/2 heads carry a dial and its answer (RFC 9113 section 8.5; RFC 9209 for failures, Server-Timing for where the time went).
 * Our own fields start with `isthmus-`.
 */

/** The longest dial, in milliseconds. Timers overflow above 2^31 - 1 ms and fire immediately. */
const MAX_LEFT = 3_600_000;

/** The field with a dial's tenant. Tenants get equal shares of a link. */
export const TENANT_FIELD = 'isthmus-tenant';

/** In the refusal of an attach: no other attach of the tunnel can succeed. */
const UNRESUMABLE = 'isthmus-unresumable';

/** The head of a dial. It carries the milliseconds left, not the deadline, because clocks differ. */
export function requestHead(request: DialRequest): OutgoingHead {
  const head: Record<string, string | number> = {
    ':method': 'CONNECT',
    ':authority': formatDestination(request.destination),
    'isthmus-dial': request.id,
    [TENANT_FIELD]: request.tenant,
    'isthmus-deadline': Math.max(1, Math.ceil(request.deadline - performance.now())),
  };
  const caller = callerName(request);
  if (caller !== '') head['isthmus-caller'] = percentEncoded(caller);
  if (request.session !== undefined) head['isthmus-session'] = request.session;
  if (request.traceparent !== undefined) head.traceparent = request.traceparent;
  if (request.resume) addResumeRequest(head, request.resume);
  return head;
}

/**
 * Throws DialError http_request_error if the head is not a dial.
 * @param progress tells the other side how far the dial is
 */
export function readRequest(head: Head, progress: Pick<DialRequest, 'acknowledged' | 'underWay'> = {}): ServedDial {
  const left = Number(head['isthmus-deadline']);
  const id = head['isthmus-dial'];
  const tenant = head[TENANT_FIELD];
  if (!/^[0-9a-f]{16}$/.test(id ?? '') || !tenant || !(left > 0)) {
    throw new DialError(
      'http_request_error',
      'not a dial: isthmus-dial, isthmus-tenant or isthmus-deadline is missing',
    );
  }
  const session = head['isthmus-session'];
  const caller = readCaller(head['isthmus-caller']);
  const { traceparent } = head;
  const resume = readResumeRequest(head);
  return {
    id: id as string,
    tenant,
    destination: parseDestination(head[':authority'] ?? ''),
    deadline: performance.now() + Math.min(left, MAX_LEFT),
    signal: new DialAbort(),
    ...(session !== undefined && { session }),
    ...(caller !== undefined && { callerName: caller }),
    ...(traceparent !== undefined && { traceparent }),
    ...(resume && { resume }),
    ...progress,
  };
}

/** Reads the caller's name. Rules of a tenant's policy may apply to named callers, so a dial with an unreadable name is rejected. */
function readCaller(value: string | undefined): string | undefined {
  if (value === undefined) return undefined;
  const text = percentDecoded(value);
  try {
    if (text === undefined) throw new Error('isthmus-caller is not percent-encoded');
    return checkName('isthmus-caller', text);
  } catch (error) {
    throw new DialError('http_request_error', `not a dial: ${(error as Error).message}`);
  }
}

/** In a 102 of a hub: the round-trip time of its link to the agent, in milliseconds. The agent's own 102 is without it. */
const ROUND_TRIP_FIELD = 'isthmus-round-trip';

/** The longest round-trip time that a hub may claim, in milliseconds. */
const MAX_ROUND_TRIP = 5000;

/** A hub passes a dial on, over a link with this round-trip time in milliseconds. */
export function underWayHead(roundTripMs: number): OutgoingHead {
  return { ':status': 102, [ROUND_TRIP_FIELD]: Math.ceil(roundTripMs) };
}

/** Reads a round-trip time, in milliseconds; undefined if the head has none, or none that can be. */
export function readUnderWay(head: Head): number | undefined {
  const roundTripMs = Number(head[ROUND_TRIP_FIELD]);
  return roundTripMs >= 0 ? Math.min(roundTripMs, MAX_ROUND_TRIP) : undefined;
}

export interface Answer {
  readonly agentId: string;
  readonly sessionId: string;
  readonly hubId: string;
  readonly agentPrincipal?: string;
  readonly timing: DialTiming;
  readonly resume?: ResumeAnswer;
}

export function answerHead({ agentId, sessionId, hubId, agentPrincipal, timing, resume }: Answer): OutgoingHead {
  const head: Record<string, string | number> = {
    ':status': 200,
    'isthmus-agent': encodeURIComponent(agentId),
    'isthmus-session': sessionId,
    'isthmus-hub': encodeURIComponent(hubId),
  };
  if (agentPrincipal !== undefined) head['isthmus-agent-principal'] = encodeURIComponent(agentPrincipal);
  const told = serverTiming(timing);
  if (told !== '') head['server-timing'] = told;
  if (resume) addResumeAnswer(head, resume);
  return head;
}

export function refusalHead(error: DialError): OutgoingHead {
  const told = serverTiming(error.timing);
  return {
    ':status': error.status,
    'proxy-status': proxyStatus(error),
    ...(error.retryable && { 'isthmus-retryable': '?1' }),
    ...(error.expired && { 'isthmus-expired': '?1' }),
    ...(error.cause instanceof NotAuthorised &&
      error.cause.rule && { 'isthmus-rule': percentEncoded(error.cause.rule) }),
    ...(error.cause instanceof AttachRefused && error.cause.final && { [UNRESUMABLE]: '?1' }),
    ...(told !== '' && { 'server-timing': told }),
  };
}

/**
 * Throws DialError if the head is a refusal or cannot be read. An unreadable head is a fault of the other side. Another session may be
 * tried, because the caller has received nothing from the destination.
 */
export function readAnswer(head: Head): Answer {
  const status = Number(head[':status']);
  if (status !== 200) throw readRefusal(head, status);
  const resume = readResumeAnswer(head);
  return {
    agentId: decoded(head, 'isthmus-agent'),
    sessionId: head['isthmus-session'] ?? '',
    hubId: decoded(head, 'isthmus-hub'),
    ...(head['isthmus-agent-principal'] !== undefined && {
      agentPrincipal: decoded(head, 'isthmus-agent-principal'),
    }),
    timing: readTiming(head['server-timing'] ?? ''),
    ...(resume && { resume }),
  };
}

function decoded(head: Head, name: string): string {
  const value = head[name] ?? '';
  const text = percentDecoded(value);
  if (text !== undefined) return text;
  const why = `the answer's ${name} is not percent-encoded: ${JSON.stringify(value.slice(0, 60))}`;
  throw new DialError('connection_terminated', why, { retryable: true });
}

function readRefusal(head: Head, status: number): DialError {
  const given = head['proxy-status'];
  const name = /;\s*error=([a-z_]+)/.exec(given ?? '')?.[1] ?? '';
  const details = /;\s*details="((?:[^"\\]|\\.)*)"/.exec(given ?? '')?.[1]?.replace(/\\(.)/g, '$1');
  const code: DialErrorCode = isDialErrorCode(name) ? name : 'proxy_internal_error';
  const text = details ?? `answered with status ${status}`;
  // For the audit record of the gateway.
  const rule = head['isthmus-rule'];
  return new DialError(code, text, {
    // A peer that serves dials says why it refuses one. An answer without a reason comes from something else, so another session may be tried.
    retryable: given === undefined || head['isthmus-retryable'] === '?1',
    expired: head['isthmus-expired'] === '?1',
    ...(rule !== undefined && { cause: new NotAuthorised(text, { rule: reasonOf(rule) }) }),
    ...(head[UNRESUMABLE] === '?1' && { cause: new AttachRefused(text, { final: true }) }),
    timing: readTiming(head['server-timing'] ?? ''),
  });
}

/** `Proxy-Status` of RFC 9209. An RFC 8941 string contains only printable ASCII. */
export function proxyStatus(error: DialError): string {
  const details = error.message.replace(/[^\x20-\x7e]/g, '?').replace(/["\\]/g, '\\$&');
  // Section 2.1 allows parameters of our own.
  const [, traceId] = /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(error.traceparent ?? '') ?? [];
  return `isthmus; error=${error.code}; details="${details}"${traceId ? `; trace-id="${traceId}"` : ''}`;
}

/** Our timings by the names of Server-Timing's metrics. */
const METRICS: ReadonlyMap<string, keyof DialTiming> = new Map([
  ['dns', 'dnsMs'],
  ['connect', 'connectMs'],
  ['agent', 'agentMs'],
  ['hub', 'hubMs'],
]);

function serverTiming(timing: DialTiming): string {
  const parts = [];
  for (const [name, key] of METRICS) {
    const ms = timing[key];
    if (ms !== undefined) parts.push(`${name};dur=${ms.toFixed(3)}`);
  }
  return parts.join(', ');
}

function readTiming(value: string): DialTiming {
  const timing: { -readonly [Key in keyof DialTiming]: DialTiming[Key] } = {};
  for (const [, name = '', duration] of value.matchAll(/(?:^|,)\s*([a-z]+);dur=(\d+(?:\.\d+)?)(?=$|[,;\s])/g)) {
    const key = METRICS.get(name);
    const ms = Number(duration);
    if (key && Number.isFinite(ms)) timing[key] = ms;
  }
  return timing;
}
