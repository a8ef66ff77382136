import { adminApi, valuesOf } from '@isthmus/proto/admin';
import { renewalIsDue } from '@isthmus/runtime';
import {
  type AgentIdentifiers,
  type AnyPrincipal,
  type AttemptRecord,
  type DialError,
  type DialFailure,
  type DialTiming,
  formatDestination,
  type ResumableTunnel,
  type TunnelInfo,
  upstreamReason,
} from '@isthmus/tunnel';
import { ServerError, Status } from 'nice-grpc';
import type { AdminBackend, KnownSession, Notice } from '../backend.ts';
import { ADMIN } from '../defaults.ts';
import type { SeenEvent } from './recent.ts';
import type { SeenDial } from './recent-dials.ts';
import type { Loss } from './recent-losses.ts';

type Service = adminApi.AdminServiceImplementation;

/** Who asks. */
interface Asker {
  /** Aborts when it is gone, or cancels. */
  readonly signal: AbortSignal;
  /** Set for an operator of one tenant alone. */
  readonly principal: AnyPrincipal | undefined;
}

/** A method of the admin RPC, as a process answers it. @throws ServerError */
export type Call<M extends keyof Service> = (
  backend: AdminBackend,
  request: Parameters<Service[M]>[0],
  asker: Asker,
) => ReturnType<Service[M]>;

/** Converts what the core knows into messages of the admin API. */

export const ROLES = valuesOf(adminApi.Role, 'ROLE');
export const ADMISSIONS = valuesOf(adminApi.Admission, 'ADMISSION');
export const PROTOCOLS = valuesOf(adminApi.LinkProtocol, 'LINK_PROTOCOL');
const EVENTS = valuesOf(adminApi.Event_Type, 'TYPE');
const NOTICES = valuesOf(adminApi.Notice_Kind, 'KIND');
const KINDS = valuesOf(adminApi.DialAttempt_Kind, 'KIND');
const OUTCOMES = valuesOf(adminApi.DialAttempt_Outcome, 'OUTCOME');

/** Sorts oldest first. */
export function byAge(a: { readonly since: number }, b: { readonly since: number }): number {
  return a.since - b.since;
}

/** Counts the tunnels through each session. */
export function tunnelsBySession(tunnels: Iterable<TunnelInfo>): Map<string, number> {
  const through = new Map<string, number>();
  for (const { sessionId } of tunnels) through.set(sessionId, (through.get(sessionId) ?? 0) + 1);
  return through;
}

export function sessionMessage(
  session: KnownSession,
  quarantined: string | undefined,
  tunnels: number,
): adminApi.DeepPartial<adminApi.Session> {
  const { certificate, protocol, since: sinceMs, drainingSince: drainingSinceMs = 0 } = session;
  const isDue = certificate && renewalIsDue(certificate.validTo, certificate.validFrom);
  return {
    ...session,
    ...{ sinceMs, drainingSinceMs, tunnels },
    protocol: protocol ? PROTOCOLS[protocol] : adminApi.LinkProtocol.LINK_PROTOCOL_UNSPECIFIED,
    identifiers: identifiersMessage(session.identifiers),
    quarantined: quarantined !== undefined,
    quarantineReason: quarantined ?? '',
    certificateEndsMs: isDue ? certificate.validTo : 0,
  };
}

function identifiersMessage({ ipv4, ipv6, host, cidr, defaultRoute }: AgentIdentifiers): adminApi.Identifiers {
  return { ipv4: [...ipv4], ipv6: [...ipv6], host: [...host], cidr: [...cidr], defaultRoute };
}

export function tunnelMessage(tunnel: TunnelInfo, now: number): adminApi.Tunnel {
  const { role, dial, agentId, sessionId, hubId, since: sinceMs, up: bytesUp, down: bytesDown, resumable } = tunnel;
  return {
    ...{ dialId: dial.id, tenant: dial.tenant, agentId, sessionId, hubId, sinceMs, bytesUp, bytesDown },
    // No agent carries it. A gateway's is of no hub.
    role: ROLES[role !== 'api-server' ? role : hubId === '' ? 'gateway' : 'hub'],
    destination: formatDestination(dial.destination),
    caller: dial.caller?.identity ?? '',
    ageMs: Math.max(0, now - sinceMs),
    resume: resumable && resumeMessage(resumable),
    halfClosed: tunnel.halfClosed ?? '',
    idleMs: Math.floor(tunnel.idleMs ?? 0),
  };
}

export function resumeMessage({
  attached,
  moves,
  kept,
}: Pick<ResumableTunnel, 'attached' | 'moves' | 'kept'>): adminApi.Tunnel_Resume {
  return { attached, moves, keptBytes: kept };
}

export function noticeMessage({ kind, text, todo = '' }: Notice): adminApi.Notice {
  return { kind: NOTICES[kind], text, todo };
}

export function eventMessage({ type, role, ...event }: SeenEvent): adminApi.Event {
  return { ...event, type: EVENTS[type], role: role ? ROLES[role] : adminApi.Role.ROLE_UNSPECIFIED };
}

export function lossMessage({ role, identifiers, ...loss }: Loss): adminApi.Loss {
  return { ...loss, role: ROLES[role], identifiers: identifiers && identifiersMessage(identifiers) };
}

/** @param phases whether to say where its time went */
export function dialMessage(dial: SeenDial, phases = false): adminApi.DialRecord {
  const { role, tenant, destination, caller, traceparent, log, start, outcome, session, firstByteMs } = dial;
  // The session that took a dial, or the last one tried if it failed.
  const last = log?.attempts.at(-1);
  return {
    ...{ dialId: dial.id, tenant, firstByteMs, ms: outcome?.ms, timing: outcome?.timing },
    role: ROLES[role],
    destination: formatDestination(destination),
    caller: caller?.identity ?? '',
    via: caller?.via ?? '',
    startedMs: epoch(start),
    state: stateOf(dial),
    error: outcome?.error && failureMessage(outcome.error, outcome.failure),
    agentId: outcome?.agentId ?? last?.agentId ?? '',
    sessionId: outcome?.sessionId ?? last?.sessionId ?? session ?? '',
    hubId: outcome?.hubId ?? last?.hubId ?? '',
    attempts: log?.attempts.map((attempt) => attemptMessage(attempt, start)) ?? [],
    parkedMs: log?.parkedMs ?? 0,
    traceId: traceparent?.split('-')[1] ?? '',
    phases: phases ? phasesOf(dial) : [],
  };
}

function stateOf({ outcome }: SeenDial): adminApi.DialState {
  if (!outcome) return adminApi.DialState.DIAL_STATE_RUNNING;
  return outcome.error ? adminApi.DialState.DIAL_STATE_FAILED : adminApi.DialState.DIAL_STATE_ESTABLISHED;
}

/** Converts to milliseconds since the epoch, by the current clock. @param moment of `performance.now()` */
function epoch(moment: number): number {
  return Math.round(Date.now() - (performance.now() - moment));
}

function failureMessage({ code, message, retryable }: DialError, failure?: DialFailure): adminApi.DialFailure {
  return { code, text: message, reason: failure === undefined ? '' : upstreamReason(failure), retryable };
}

function attemptMessage({ start, error, ...attempt }: AttemptRecord, dialStart: number): adminApi.DialAttempt {
  return {
    ...attempt,
    kind: KINDS[attempt.kind],
    startMs: Math.max(0, start - dialStart),
    ms: attempt.ms,
    outcome: OUTCOMES[attempt.outcome],
    error: error && failureMessage(error),
  };
}

const errorOf = (code: Status) => (text: string) => new ServerError(code, text);

/** The errors of the admin RPC. Each text says what to do. `absent`: the program has no part that can do it. */
export const absent = errorOf(Status.UNIMPLEMENTED);
export const invalid = errorOf(Status.INVALID_ARGUMENT);
export const notFound = errorOf(Status.NOT_FOUND);
export const denied = errorOf(Status.PERMISSION_DENIED);
export const exhausted = errorOf(Status.RESOURCE_EXHAUSTED);
export const internal = errorOf(Status.INTERNAL);
export const unavailable = errorOf(Status.UNAVAILABLE);

/**
 * Returns the tenant that a request is about. Without `--tenants-dir`, that is by default the tenant of the gateway's own callers. With
 * it, a request has to name its tenant, because agents of several tenants may have one id, and destinations of theirs one address.
 * @throws ServerError
 */
export function tenantAsked({ routing, tenants }: Pick<AdminBackend, 'routing' | 'tenants'>, named = ''): string {
  if (!tenants) return named || routing?.tenant || 'default';
  if (named !== '' && tenants.has(named)) return named;
  const names = [...tenants.list()].map(({ name }) => name).sort();
  const more = names.length > ADMIN.namesInRefusal ? ` and ${names.length - ADMIN.namesInRefusal} more` : '';
  const known =
    names.length === 0 ? 'No tenant is in force' : `Tenants: ${names.slice(0, ADMIN.namesInRefusal).join(', ')}${more}`;
  throw invalid(`${named === '' ? 'name a tenant with --tenant' : `there is no tenant ${named}`}. ${known}`);
}

interface Span {
  readonly startMs: number;
  readonly ms: number;
}

/**
 * Returns where a dial's time went. The gateway's total contains the wait for a session and the attempts. The answered attempt contains
 * the hub, the agent, DNS and connect. The destination's first byte comes last.
 */
export function phasesOf({ log, outcome, start, firstByteMs }: SeenDial): adminApi.Phase[] {
  if (!outcome) return [];
  const whole = { startMs: 0, ms: outcome.ms };
  const failed = outcome.error ? `${outcome.error.code}: ${outcome.error.message}` : '';
  const phases: adminApi.Phase[] = [{ name: 'gateway', depth: 0, ...whole, detail: failed }];
  const attempts = log?.attempts ?? [];
  if (log && log.parkedMs > 0) phases.push(parked(log.parkedMs, attempts[0], start));
  const answered = attempts.find((attempt) => attempt.outcome === 'established') ?? attempts.at(-1);
  for (const attempt of attempts) {
    const span = { startMs: Math.max(0, attempt.start - start), ms: attempt.ms ?? 0 };
    phases.push({ name: 'attempt', depth: 1, ...span, detail: described(attempt) });
    if (attempt === answered && outcome.timing) phases.push(...beyond(span, attempt, outcome.timing));
  }
  if (firstByteMs !== undefined) {
    phases.push({ name: 'first_byte', depth: 0, startMs: outcome.ms, ms: firstByteMs, detail: 'from the destination' });
  }
  return phases;
}

/** A parked dial waits before its first attempt. Later parking is added to the same phase. */
function parked(ms: number, first: AttemptRecord | undefined, start: number): adminApi.Phase {
  const startMs = first ? Math.max(0, first.start - start - ms) : 0;
  return { name: 'park', depth: 1, startMs, ms, detail: 'no session to try' };
}

function described({ kind, agentId, hubId, sessionId, outcome, error }: AttemptRecord): string {
  const failed = error ? `: ${error.code}, ${error.message}` : '';
  if (kind === 'direct') return `by the gateway itself, ${outcome}${failed}`;
  return `${kind}, agent ${agentId} on hub ${hubId}, session ${sessionId}, ${outcome}${failed}`;
}

/** The times that hub and agent reported, each centred in the phase around it. */
function beyond(attempt: Span, { hubId, agentId }: AttemptRecord, timing: DialTiming): adminApi.Phase[] {
  const { hubMs, agentMs, dnsMs, connectMs } = timing;
  const phases: adminApi.Phase[] = [];
  let around = attempt;
  let depth = 2;
  const enter = (name: string, ms: number | undefined, detail: string) => {
    if (ms === undefined) return;
    around = inMiddle(around, ms);
    phases.push({ name, depth: depth++, ...around, detail });
  };
  enter('hub', hubMs, hubId);
  enter('agent', agentMs, agentId);
  // The agent resolves and connects.
  const both = inMiddle(around, (dnsMs ?? 0) + (connectMs ?? 0));
  if (dnsMs !== undefined) phases.push({ name: 'dns', depth, startMs: both.startMs, ms: dnsMs, detail: '' });
  if (connectMs !== undefined) {
    const startMs = both.startMs + (dnsMs ?? 0);
    phases.push({ name: 'connect', depth, startMs, ms: connectMs, detail: '' });
  }
  return phases;
}

/** Clocks of other machines differ from ours. A part longer than the whole keeps its reported length and starts where the whole starts. */
function inMiddle({ startMs, ms: whole }: Span, ms: number): Span {
  return { startMs: startMs + Math.max(0, whole - ms) / 2, ms };
}
