import {
  type AnyPrincipal,
  type AttemptRecord,
  type CutBy,
  DialError,
  type DialErrorCode,
  type DialLog,
  type DialOutcome,
  type DialRequest,
  formatDestination,
  notAuthorisedIn,
  type Operation,
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
function verified(principal: AnyPrincipal | undefined): Verified {
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
function textOf(error: Error | undefined): { readonly text?: string } {
  return error ? { text: shortened(error.message) } : {};
}

/** Shortens a text that may come from a peer, and removes what looks like a secret. */
function shortened(text: string): string {
  return redactLine(text).slice(0, TELEMETRY.auditTextCharacters);
}

/** Rounds to a microsecond: a connection inside a cluster takes a tenth of a millisecond. */
function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

/**
 * Makes the records of what is no dial. Each says in `record` what it is; a dial's record has no such field, and is as it was before there were
 * others. docs/audit.schema.json says of each field what it is.
 * @param process that writes them: `--server-id`, or an agent's id
 */
export function otherRecords(process: string) {
  const base = <Kind extends string>(record: Kind, ms = 0) => {
    return { time: new Date(Date.now() - ms).toISOString(), record, process };
  };
  return {
    refusal(where: string, remote: string, error: Error) {
      const { principal, tenant, rule, destination } = notAuthorisedIn(error) ?? {};
      const who = { ...(tenant !== undefined && { tenant }), ...verified(principal) };
      const by = rule !== undefined && { rule };
      const to = destination !== undefined && { destination: destination.slice(0, TELEMETRY.auditTextCharacters) };
      return { ...base('refusal'), where, remote, ...who, ...by, ...to, text: shortened(error.message) };
    },
    /** Refusals of one kind that got no record of their own. */
    refusals: (of: string, count: number) => ({ ...base('refusals'), of, count }),
    session(state: 'opened' | 'closed', info: SessionInfo, reason?: string) {
      const { sessionId, tenant, agentId, protocol, remote, principal } = info;
      const who = { session: sessionId, tenant, agent: agentId, ...verified(principal), protocol, remote };
      return { ...base('session'), state, ...who, ...(reason !== undefined && { text: shortened(reason) }) };
    },
    operation(operation: Operation) {
      const { text } = operation;
      return { ...base('operation'), ...operation, ...(text !== undefined && { text: shortened(text) }) };
    },
    /** @param problem of a file, and the tenant that an earlier text of it keeps in force */
    tenants(changed: readonly string[], gone: readonly string[], problem?: string, tenant?: string) {
      const most = TELEMETRY.auditNames;
      const kept = tenant !== undefined && { tenant };
      const wrong = problem !== undefined && { problem: shortened(problem) };
      return { ...base('tenants'), changed: changed.slice(0, most), gone: gone.slice(0, most), ...kept, ...wrong };
    },
    /** When a client's connection was made, and how it ended: with an error before it had reached its API server, or as a tunnel. */
    apiServer({ id, tenant, destination, caller }: DialRequest, ms: number, end: DialError | EndedTunnel) {
      const { remote = '', serverName, identity } = caller ?? {};
      const from = { remote, ...(serverName === undefined ? { agent: identity ?? '' } : { serverName }) };
      const address = formatDestination(destination);
      const record = { ...base('api-server', ms), connection: id, tenant, ...from, address };
      if (end instanceof DialError) return { ...record, outcome: end.code, ...textOf(end), ms: rounded(ms) };
      const { up, down, outcome } = end;
      return { ...record, outcome: 'established', ms: rounded(ms), bytes: { up, down }, ...closedOf(outcome) };
    },
  };
}

type OtherRecords = ReturnType<typeof otherRecords>;

export type OtherRecord = ReturnType<OtherRecords[keyof OtherRecords]>;

export type TrailRecord = AuditRecord | OtherRecord;
