import { isPrintable } from '@isthmus/runtime';
import {
  type AttachAnswer,
  AttachRefused,
  type AttachRequest,
  type Caller,
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
  type ResumeTicket,
  TUNNEL,
} from '@isthmus/tunnel';
import type { Head, OutgoingHead } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import type { ServedDial } from '../dials.ts';
import { percentDecoded, percentEncoded, quoted, reasonOf } from '../http1.ts';

/** The fields of a head with which a tunnel can outlive its hub (docs/RESUME.md). Hubs pass both on. */
const RESUME_FIELD = 'isthmus-resume';
const ATTACH_FIELD = 'isthmus-attach';

/** In an attach of `isthmus hold`: the agent's process, to which its gateway chooses a session. In an answer, the first names the agent. */
const AGENT_FIELD = 'isthmus-agent';
const INSTANCE_FIELD = 'isthmus-instance';
/** Names a hub in an answer to a dial, and in that to a gateway's control stream. */
export const HUB_FIELD = 'isthmus-hub';

/** Positions are counts of bytes. They fit into a mark: see tunnel-end.ts. */
const POSITION = /^\d{1,15}$/;
const SECRET = /^[0-9a-f]{32}$/;

/**
 * The field of a dial. `direct`: the gateway is at the other side of this link. A hub that passes an offer on leaves it out. Later versions
 * may append more.
 */
const OFFER = /^\?1(;direct)?(?:;gateway=([0-9a-f]{16}))?(?:;|$)/;

/** The field of an answer to a dial. Later versions may add more. */
const TICKET = /^instance=([0-9a-f]{16});secret=([0-9a-f]{32})(?:;|$)/;

function encode(values: Readonly<Record<string, string | number | undefined>>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return given.map(([name, value]) => `${name}=${value}`).join(';');
}

function decode(text: string): ReadonlyMap<string, string> {
  return new Map(text.split(';', TRANSPORT.fieldParts).map((part) => part.split('=', 2) as [string, string]));
}

function positions(values: ReadonlyMap<string, string>, names: readonly string[]): (number | undefined)[] {
  return names.map((name) => {
    const text = values.get(name) ?? '';
    return POSITION.test(text) ? Number(text) : undefined;
  });
}

function finalOf(values: ReadonlyMap<string, string>): { readonly final?: number } {
  const [final] = positions(values, ['final']);
  return final === undefined ? {} : { final };
}

// How HTTP/2 heads carry a dial and its answer (RFC 9113 section 8.5; RFC 9209 for failures, Server-Timing for where the time went).
// Our own fields start with `isthmus-`.

/** Whether a text can name a process or a dial: 16 hexadecimal digits. */
export function isHexId(text: string): boolean {
  return /^[0-9a-f]{16}$/.test(text);
}

/** The field with a dial's tenant. Tenants get equal shares of a link. */
export const TENANT_FIELD = 'isthmus-tenant';

/** An operator tries this dial (RFC 9651, a Boolean). */
const TRIAL_FIELD = 'isthmus-trial';

/** Through which agent a client of an API server came, where that came from, and where it came to. From a hub to a gateway. */
const CLIENT_FIELD = 'isthmus-client';

/** In the refusal of an attach: no other attach of the tunnel can succeed. */
const UNRESUMABLE = 'isthmus-unresumable';

/** A head that is being built. */
type Fields = Record<string, string | number>;

/** An attach to serve. Its signal aborts when the dialling side has gone. */
export interface ServedAttach extends AttachRequest {
  readonly signal: DialAbort;
}

/** The head of a dial. */
export function requestHead(request: DialRequest): OutgoingHead {
  const head: Fields = { ':method': 'CONNECT', ':authority': formatDestination(request.destination) };
  addCommon(head, request);
  if (request.trial) head[TRIAL_FIELD] = '?1';
  if (request.resumeOffer) {
    const { halfAtPeer, gatewayInstance: gateway } = request.resumeOffer;
    head[RESUME_FIELD] = `?1${halfAtPeer ? ';direct' : ''}${gateway === undefined ? '' : `;gateway=${gateway}`}`;
  }
  return head;
}

/** The path of an attach, which is a POST. */
export const ATTACH_PATH = '/attach';

/** The head of an attach. */
export function attachHead(request: AttachRequest): OutgoingHead {
  const authority = formatDestination(request.destination);
  const head: Fields = { ':method': 'POST', ':scheme': 'http', ':authority': authority, ':path': ATTACH_PATH };
  addCommon(head, request);
  const { process } = request;
  if (process) {
    head[AGENT_FIELD] = percentEncoded(process.agentId);
    head[INSTANCE_FIELD] = process.instance;
  }
  const { secret, number, received, taken, final } = request.claim;
  head[ATTACH_FIELD] = encode({ secret, number, received, taken, final, ...(request.halfAtPeer && { direct: 1 }) });
  return head;
}

/** It carries the milliseconds left, not the deadline, because clocks differ. */
function addCommon(head: Fields, request: DialRequest | AttachRequest): void {
  head['isthmus-dial'] = request.id;
  head[TENANT_FIELD] = request.tenant;
  head['isthmus-deadline'] = Math.max(1, Math.ceil(request.deadline - performance.now()));
  const caller = callerName(request);
  if (caller !== '') head['isthmus-caller'] = percentEncoded(caller);
  const { local, identity, remote = '' } = request.caller ?? {};
  if (local !== undefined) head[CLIENT_FIELD] = `agent=${percentEncoded(identity ?? '')};from=${remote};to=${local}`;
  if (request.session !== undefined) head['isthmus-session'] = request.session;
  if (request.traceparent !== undefined) head.traceparent = request.traceparent;
}

/**
 * Throws DialError http_request_error if the head is not a dial.
 * @param progress tells the other side how far the dial is
 */
export function readRequest(head: Head, progress: Pick<DialRequest, 'acknowledged' | 'underWay'> = {}): ServedDial {
  // As gateways before `POST /attach` asked. As a dial, it would reach the destination a second time.
  if (head['isthmus-attach'] !== undefined)
    throw new DialError('http_request_error', `an attach is no dial: ask by POST ${ATTACH_PATH}`);
  const [offer, halfAtPeer, gatewayInstance] = OFFER.exec(head[RESUME_FIELD] ?? '') ?? [];
  const session = head['isthmus-session'];
  return {
    ...readCommon(head),
    ...(session !== undefined && { session }),
    ...(offer !== undefined && { resumeOffer: { halfAtPeer: halfAtPeer !== undefined, gatewayInstance } }),
    ...(head[TRIAL_FIELD] === '?1' && { trial: true }),
    ...progress,
  };
}

/**
 * Throws DialError http_request_error if the head is not an attach.
 * @param underWay tells the other side how far the attach is
 */
export function readAttach(head: Head, { underWay }: Pick<AttachRequest, 'underWay'> = {}): ServedAttach {
  const session = head['isthmus-session'] ?? '';
  const process = readProcess(head);
  const values = decode(head[ATTACH_FIELD] ?? '');
  const secret = values.get('secret') ?? '';
  const [number, received, taken] = positions(values, ['number', 'received', 'taken']);
  if (!SECRET.test(secret) || number === undefined || received === undefined || taken === undefined)
    // It is not quoted, for it may hold the secret.
    throw new DialError('http_request_error', `not an attach: ${ATTACH_FIELD} cannot be read`);
  return {
    ...readCommon(head),
    claim: { secret, number, received, taken, ...finalOf(values) },
    halfAtPeer: values.get('direct') === '1',
    session,
    ...(process && { process }),
    ...(underWay && { underWay }),
  };
}

function readProcess(head: Head): AttachRequest['process'] {
  const instance = head[INSTANCE_FIELD];
  const agentId = percentDecoded(head[AGENT_FIELD] ?? '');
  if (instance === undefined || !agentId) return undefined;
  if (!isHexId(instance))
    throw new DialError('http_request_error', "not an attach: the agent's process has no such name");
  return { agentId: checkName(AGENT_FIELD, agentId), instance };
}

function readCommon(head: Head) {
  const left = Number(head['isthmus-deadline']);
  const id = head['isthmus-dial'] ?? '';
  const tenant = head[TENANT_FIELD];
  if (!isHexId(id) || !tenant || !(left > 0)) {
    throw new DialError(
      'http_request_error',
      'not a dial: isthmus-dial, isthmus-tenant or isthmus-deadline is missing',
    );
  }
  const caller = readCaller(head['isthmus-caller']);
  const client = head[CLIENT_FIELD];
  const { traceparent } = head;
  return {
    id,
    tenant,
    destination: parseDestination(head[':authority'] ?? ''),
    deadline: performance.now() + Math.min(left, TRANSPORT.longestDialMs),
    signal: new DialAbort(),
    ...(client !== undefined && { caller: readClient(client) }),
    ...(caller !== undefined && { callerName: caller }),
    ...(traceparent !== undefined && { traceparent }),
  };
}

/** Reads who a client of an API server is. Only a hub is believed, by a gateway that connects for it: who takes others' dials says who they are. */
function readClient(value: string): Caller {
  const values = decode(value);
  const identity = percentDecoded(values.get('agent') ?? '');
  // Logs, audit and terminals show it.
  if (identity === undefined || !isPrintable(identity))
    throw new DialError('http_request_error', `not a dial: ${CLIENT_FIELD} cannot be read`);
  return { via: 'api-server', identity, remote: values.get('from') ?? '', local: values.get('to') ?? '' };
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

/** A hub passes a dial on, over a link with this round-trip time in milliseconds. */
export function underWayHead(roundTripMs: number): OutgoingHead {
  return { ':status': 102, [ROUND_TRIP_FIELD]: Math.ceil(roundTripMs) };
}

/** Reads a round-trip time, in milliseconds; undefined if the head has none, or none that can be. */
export function readUnderWay(head: Head): number | undefined {
  const roundTripMs = Number(head[ROUND_TRIP_FIELD]);
  return roundTripMs >= 0 ? Math.min(roundTripMs, TRANSPORT.longestRoundTripMs) : undefined;
}

/** Where a dial or an attach went. */
interface Names {
  readonly agentId: string;
  readonly sessionId: string;
  readonly hubId: string;
}

/** Names a session of an agent, in the answers of its dials. */
export interface SessionNames extends Names {
  readonly agentPrincipal?: string;
}

interface Answer extends SessionNames {
  readonly timing: DialTiming;
  /** Set if the tunnel may be resumed. */
  ticket?: ResumeTicket;
}

/** @param ticket set if the tunnel may be resumed */
export function answerHead(answer: Omit<Answer, 'ticket'>, ticket: ResumeTicket | undefined): OutgoingHead {
  const { agentPrincipal, timing } = answer;
  const head = namesHead(answer);
  if (agentPrincipal !== undefined) head['isthmus-agent-principal'] = encodeURIComponent(agentPrincipal);
  const told = serverTiming(timing);
  if (told !== '') head['server-timing'] = told;
  if (ticket) head[RESUME_FIELD] = `instance=${ticket.instance};secret=${ticket.secret}`;
  return head;
}

interface AttachedAnswer extends Names {
  readonly answer: AttachAnswer;
}

export function attachedHead({ answer, ...names }: AttachedAnswer): OutgoingHead {
  const { from, received, taken, final } = answer;
  const head = namesHead(names);
  head[ATTACH_FIELD] = encode({ from, received, taken, final });
  return head;
}

function namesHead({ agentId, sessionId, hubId }: Names): Fields {
  return {
    ':status': 200,
    [AGENT_FIELD]: encodeURIComponent(agentId),
    'isthmus-session': sessionId,
    [HUB_FIELD]: encodeURIComponent(hubId),
  };
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
 *
 * @param session at a hub, whose own names of it count, and not what the answer says
 */
export function readAnswer(head: Head, session?: SessionNames): Answer {
  const status = Number(head[':status']);
  if (status !== 200) throw readRefusal(head, status);
  const answer: Answer = { ...(session ?? readSession(head)), timing: readTiming(head['server-timing'] ?? '') };
  // What cannot be read is ignored: the tunnel is then not resumed.
  const [, instance, secret] = TICKET.exec(head[RESUME_FIELD] ?? '') ?? [];
  if (instance && secret) answer.ticket = { instance, secret };
  return answer;
}

function readSession(head: Head): SessionNames {
  const names: Names & { agentPrincipal?: string } = readNames(head);
  if (head['isthmus-agent-principal'] !== undefined) names.agentPrincipal = decoded(head, 'isthmus-agent-principal');
  return names;
}

/** Throws as `readAnswer`. */
export function readAttachedAnswer(head: Head): AttachedAnswer {
  const status = Number(head[':status']);
  if (status !== 200) throw readRefusal(head, status);
  const values = decode(head[ATTACH_FIELD] ?? '');
  const [from, received, taken] = positions(values, ['from', 'received', 'taken']);
  if (from === undefined || received === undefined || taken === undefined) {
    const text = 'the answer to the attach does not say where to go on';
    throw new DialError('proxy_internal_error', text, { retryable: true });
  }
  return { ...readNames(head), answer: { from, received, taken, ...finalOf(values) } };
}

function readNames(head: Head): Names {
  const [agentId, hubId] = [decoded(head, AGENT_FIELD), decoded(head, HUB_FIELD)];
  return { agentId, sessionId: head['isthmus-session'] ?? '', hubId };
}

function decoded(head: Head, name: string): string {
  const value = head[name] ?? '';
  const text = percentDecoded(value);
  if (text !== undefined) return text;
  const why = `the answer's ${name} is not percent-encoded: ${quoted(value)}`;
  throw new DialError('proxy_internal_error', why, { retryable: true });
}

function readRefusal(head: Head, status: number): DialError {
  const given = head['proxy-status'];
  const name = /;\s*error=([a-z_]+)/.exec(given ?? '')?.[1] ?? '';
  const details = /;\s*details="((?:[^"\\]|\\.)*)"/.exec(given ?? '')?.[1]?.replace(/\\(.)/g, '$1');
  const code: DialErrorCode = isDialErrorCode(name) ? name : 'proxy_internal_error';
  const text = details?.slice(0, TUNNEL.errorTextChars) ?? `answered with status ${status}`;
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
const METRICS: readonly (readonly [name: string, key: keyof DialTiming])[] = [
  ['dns', 'dnsMs'],
  ['connect', 'connectMs'],
  ['agent', 'agentMs'],
  ['hub', 'hubMs'],
];
const PARTS = new Map<string, keyof DialTiming>(METRICS);

const METRIC = /^\s*([a-z]+);dur=(\d+(?:\.\d+)?)(?=$|[;\s])/;

function serverTiming(timing: DialTiming): string {
  let told = '';
  for (const metric of METRICS) {
    const ms = timing[metric[1]];
    if (ms !== undefined) told += `${told === '' ? '' : ', '}${metric[0]};dur=${ms.toFixed(3)}`;
  }
  return told;
}

function readTiming(value: string): DialTiming {
  const timing: { -readonly [Key in keyof DialTiming]: DialTiming[Key] } = {};
  for (const metric of value.split(',')) {
    const [, name = '', duration] = METRIC.exec(metric) ?? [];
    const key = PARTS.get(name);
    const ms = Number(duration);
    if (key && Number.isFinite(ms)) timing[key] = ms;
  }
  return timing;
}
