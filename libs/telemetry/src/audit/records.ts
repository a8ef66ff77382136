import {
  type AnyPrincipal,
  type AttemptRecord,
  type CutBy,
  type DialError,
  type DialErrorCode,
  type DialLog,
  type DialOutcome,
  type DialRequest,
  formatDestination,
  notAuthorisedIn,
  type Operation,
  type Operator,
  principalText,
  type ResumableTunnel,
  type SessionInfo,
  type TunnelInfo,
  type TunnelOutcome,
} from '@isthmus/tunnel';
import { TELEMETRY } from '../defaults.ts';
import { parseTraceparent } from '../events.ts';
import { redactLine } from '../logging/logger.ts';

/** Who a peer is by its credential, and what verified that. Absent where no tenants are configured. */
interface Verified {
  /** `acme/caller/kube-apiserver` */
  readonly principal?: string;
  /** File and rule: `acme.yaml: callers[0].certificates`. */
  readonly rule?: string;
}

/** In milliseconds. Values that the agent does not report are absent. */
type Durations = { readonly dialMs: number } & Partial<
  Readonly<Record<'parkedMs' | 'hubMs' | 'agentMs' | 'dnsMs' | 'connectMs' | 'tunnelMs', number>>
>;

/** How a tunnel ended, and what cut it: absent if its caller or its destination ended it. */
interface Closed {
  readonly closed?: { readonly by: 'caller' | 'destination' | 'plane'; readonly text?: string };
  readonly cut?: CutBy;
}

/** How a gateway answered a dial, and when. */
export interface Answer {
  readonly outcome: DialOutcome;
  /** When the dial arrived, in milliseconds since the epoch. */
  readonly time: number;
  /** The same in milliseconds of `performance.now()`. */
  readonly start: number;
}

/** A tunnel that has ended. */
export interface EndedTunnel extends Pick<TunnelInfo, 'up' | 'down' | 'resumable'> {
  readonly ms: number;
  readonly outcome: TunnelOutcome;
}

/** One dial at a gateway, from its request to the end of its tunnel. docs/audit.schema.json says of each field what it is. */
export type AuditRecord = ReturnType<typeof auditRecord>;

export function auditRecord(gateway: string, dial: DialRequest, answer: Answer, tunnel?: EndedTunnel) {
  const { time, start, outcome } = answer;
  const { caller, traceparent, log } = dial;
  // Without tracing, this is the caller's own header, which may be invalid.
  const trace = traceparent === undefined ? undefined : parseTraceparent(traceparent)?.traceId;
  return {
    time: new Date(time).toISOString(),
    dial: dial.id,
    tenant: dial.tenant,
    ...(caller && { caller: { via: caller.via, identity: caller.identity, ...verified(caller.principal) } }),
    destination: formatDestination(dial.destination),
    gateway,
    ...resultOf(outcome.error),
    ...routeOf(outcome, log),
    attempts: (log?.attempts ?? []).map((attempt) => attemptOf(attempt, start)),
    durations: durationsOf(outcome, log, tunnel),
    ...movedOf(tunnel?.resumable),
    ...(tunnel && { bytes: { up: tunnel.up, down: tunnel.down } }),
    ...closedOf(tunnel?.outcome),
    ...(trace !== undefined && { trace }),
  };
}

function closedOf(outcome: TunnelOutcome | undefined): Closed {
  if (!outcome) return {};
  const { how, by, error } = outcome;
  const text = textOf(error);
  return how === 'cut' ? { closed: { by: 'plane', ...text }, cut: by } : { closed: { by, ...text } };
}

/** `rule`: the file and rule that refused the dial: `acme.yaml: dial.deny[0]`. */
function resultOf(error: DialOutcome['error']): {
  readonly outcome: 'established' | DialErrorCode;
  readonly text?: string;
  readonly rule?: string;
} {
  if (!error) return { outcome: 'established' };
  const rule = notAuthorisedIn(error)?.rule;
  return { outcome: error.code, ...textOf(error), ...(rule !== undefined && { rule }) };
}

/** Names a principal, and what verified it. */
export function verified(principal: AnyPrincipal | undefined): Verified {
  return principal ? { principal: principalText(principal), rule: principal.rule } : {};
}

/** The route that the dial used; of a failed dial, the last route that failed. Absent if no session was chosen. */
function routeOf(
  { agentId, hubId, sessionId, agentPrincipal }: DialOutcome,
  log: DialLog | undefined,
):
  | { readonly agent: string; readonly hub: string; readonly session: string; readonly agentPrincipal?: string }
  | undefined {
  if (agentId !== undefined && hubId !== undefined && sessionId !== undefined) {
    const who = agentPrincipal !== undefined && { agentPrincipal };
    return { agent: agentId, hub: hubId, session: sessionId, ...who };
  }
  const last = log?.attempts.findLast(({ outcome }) => outcome === 'failed') ?? log?.attempts.at(-1);
  return last && { agent: last.agentId, hub: last.hubId, session: last.sessionId };
}

/** How often a tunnel went on through another session, and which was the last. Absent if it stayed where it began. */
function movedOf(tunnel: ResumableTunnel | undefined) {
  if (!tunnel || tunnel.moves === 0) return undefined;
  return { moved: { times: tunnel.moves, hub: tunnel.hubId, session: tunnel.sessionId } };
}

function attemptOf(attempt: AttemptRecord, start: number) {
  const { kind, agentId, hubId, sessionId, ms = 0, outcome, error } = attempt;
  /** `overtaken`: another attempt was answered first, or the caller gave up. */
  const result: 'established' | 'overtaken' | DialErrorCode =
    error?.code ?? (outcome === 'established' ? outcome : 'overtaken');
  return {
    kind,
    agent: agentId,
    hub: hubId,
    session: sessionId,
    startMs: rounded(Math.max(0, attempt.start - start)),
    ms: rounded(ms),
    outcome: result,
    ...textOf(error),
  };
}

function durationsOf({ ms, timing }: DialOutcome, log: DialLog | undefined, tunnel?: EndedTunnel): Durations {
  const { hubMs, agentMs, dnsMs, connectMs } = timing ?? {};
  const parts = { parkedMs: log?.parkedMs || undefined, hubMs, agentMs, dnsMs, connectMs, tunnelMs: tunnel?.ms };
  const known = Object.entries(parts).filter((part): part is [string, number] => part[1] !== undefined);
  return { dialMs: rounded(ms), ...Object.fromEntries(known.map(([name, value]) => [name, rounded(value)])) };
}

/** Returns an error's text, as `shortened`. */
export function textOf(error: Error | undefined): { readonly text?: string } {
  return error ? { text: shortened(error.message) } : {};
}

/** Shortens a text that may come from a peer, and removes what looks like a secret. */
export function shortened(text: string): string {
  return redactLine(text).slice(0, TELEMETRY.auditTextCharacters);
}

/** Rounds to a microsecond: a connection inside a cluster takes a tenth of a millisecond. */
function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

/*
 * Records of what is no dial. Each says in `record` what it is; a dial's record has no such field, and is as it was before there were
 * others. docs/audit.schema.json has the schema of all.
 */

interface Base<Kind extends string> {
  /** RFC 3339 in UTC. */
  readonly time: string;
  readonly record: Kind;
  /** The process that writes it: `--server-id`, or an agent's id. */
  readonly process: string;
}

/** A connection or request that was refused. */
interface RefusalRecord extends Base<'refusal'>, Verified {
  /** The port, or the part of one. */
  readonly where: string;
  readonly remote: string;
  /** Of its principal, or of the dial that an agent refused; absent if the peer has proven none. */
  readonly tenant?: string;
  /** `host:port` that it wanted to dial, if it was a dial that was refused. */
  readonly destination?: string;
  readonly text: string;
}

/** Refusals of one kind that got no record of their own. */
interface RefusalsRecord extends Base<'refusals'> {
  /** `agents`, `dials of tenant acme` */
  readonly of: string;
  readonly count: number;
}

/** An agent's session, when it opens and when it has closed. */
interface SessionRecord extends Base<'session'>, Verified {
  readonly state: 'opened' | 'closed';
  readonly session: string;
  readonly tenant: string;
  readonly agent: string;
  readonly protocol: SessionInfo['protocol'];
  readonly remote: string;
  /** Why it has closed. */
  readonly text?: string;
}

/** What an operator did on the admin port, or was refused. */
interface OperationRecord extends Base<'operation'>, Omit<Operation, 'operator'> {
  readonly operator: Operator;
}

/** A change of the tenants in force, or a file that cannot be used. Each list names at most 100. */
interface TenantsRecord extends Base<'tenants'> {
  readonly changed: readonly string[];
  readonly gone: readonly string[];
  /** The tenant that an earlier text of the file keeps in force. */
  readonly tenant?: string;
  /** File, line, column and what is wrong there. */
  readonly problem?: string;
}

/** A client's connection to its API server, when it has ended. */
interface ApiServerRecord extends Base<'api-server'>, Closed {
  readonly connection: string;
  readonly tenant: string;
  /** `host:port` of the client, or of the agent that it came through. */
  readonly remote: string;
  /** By which it asked for the API server. Unset for one that came through an agent. */
  readonly serverName?: string;
  /** Through which it came: the agent's principal, or its id. */
  readonly agent?: string;
  /** The API server's, `host:port`: the one that it went to, or that was to be tried first. */
  readonly address: string;
  readonly outcome: 'established' | DialErrorCode;
  /** Why it was reset. */
  readonly text?: string;
  readonly ms: number;
  readonly bytes?: { readonly up: number; readonly down: number };
}

/** When a client's connection was made, and how it ended: with an error before it had reached its API server, or as a tunnel. */
export function apiServerRecord(
  process: string,
  { id, tenant, destination, caller }: DialRequest,
  end: { readonly ms: number } & ({ readonly error: DialError } | { readonly tunnel: EndedTunnel }),
): ApiServerRecord {
  const { ms } = end;
  const { remote = '', serverName, identity } = caller ?? {};
  const from = { remote, ...(serverName === undefined ? { agent: identity ?? '' } : { serverName }) };
  const base = { time: new Date(Date.now() - ms).toISOString(), record: 'api-server', process } as const;
  const about = { connection: id, tenant, ...from, address: formatDestination(destination) };
  if ('error' in end) return { ...base, ...about, outcome: end.error.code, ...textOf(end.error), ms: rounded(ms) };
  const { up, down, outcome } = end.tunnel;
  return { ...base, ...about, outcome: 'established', ms: rounded(ms), bytes: { up, down }, ...closedOf(outcome) };
}

export type OtherRecord =
  | ApiServerRecord
  | RefusalRecord
  | RefusalsRecord
  | SessionRecord
  | OperationRecord
  | TenantsRecord;

export type TrailRecord = AuditRecord | OtherRecord;
