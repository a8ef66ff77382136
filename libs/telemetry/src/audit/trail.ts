import process from 'node:process';
import { RandomSet } from '@isthmus/runtime';
import {
  type DialRequest,
  isRefusedDial,
  notAuthorisedIn,
  type Operation,
  PlaneEnded,
  type PlaneEvents,
  type SessionInfo,
  type TunnelInfo,
  unlessProbed,
} from '@isthmus/tunnel';
import { TELEMETRY } from '../defaults.ts';
import { subscribe } from '../events.ts';
import { Bursts, refusalKind } from '../logging/bursts.ts';
import { LineSink, withoutWaiting } from '../logging/line-sink.ts';
import type { Logger } from '../logging/logger.ts';
import {
  type Answer,
  type AuditRecord,
  apiServerRecord,
  auditRecord,
  type EndedTunnel,
  type OtherRecord,
  shortened,
  type TrailRecord,
  verified,
} from './records.ts';

interface AuditOptions {
  /** `--server-id`, or an agent's id. */
  readonly process: string;
  /** What gets records: a gateway's dials, and all else. */
  readonly of: { readonly dials: boolean; readonly others: boolean };
  /** A path, `-` for standard output, or empty for neither. */
  readonly log: string;
  readonly logger: Logger;
}

/** The running audit of a process. */
interface AuditTrail {
  /** Reopens the file. Call after it was renamed. */
  reopen(): void;
  /** Writes the records of open tunnels, and all that wait. Bounded in time, never throws. */
  close(): void;
}

const STDOUT = 1;

interface Means {
  readonly events: PlaneEvents;
  readonly logger: Logger;
  readonly bursts: Bursts;
}

/** Audits a program until it closes, see `auditTrail`. SIGHUP reopens its file; without an audit it ends the program, as in upstream. */
export function audited(
  events: PlaneEvents,
  options: AuditOptions,
  closing: { defer(step: () => unknown): void },
): void {
  const trail = auditTrail(events, options);
  if (!trail) return;
  closing.defer(trail.close);
  process.on('SIGHUP', trail.reopen);
}

/** Audits a process as its flags say. Returns undefined if they do not enable the audit. */
export function auditTrail(events: PlaneEvents, options: AuditOptions): AuditTrail | undefined {
  const { log, logger } = options;
  if (log === '') return undefined;
  const bursts = new Bursts({ most: TELEMETRY.auditTroubles, windowMs: TELEMETRY.auditTroublesMs }, (of, count) =>
    logger.warn({ of, count }, 'further lines were dropped'),
  );
  const report = new TrailReport(log, { events, logger, bursts });
  const sink = new LineSink(log === '-' ? withoutWaiting(STDOUT) : log, TELEMETRY.auditQueueBytes, report);
  const end = auditOf(events, options, (record) => sink.write(`${JSON.stringify(record)}\n`));
  const close = () => {
    end();
    const left = sink.exit();
    if (left > 0) report.lost(left);
    bursts.end();
  };
  // After a crash or a second signal, nothing is closed before the process exits.
  process.once('exit', close);
  return {
    reopen: () => sink.reopen(),
    close() {
      process.off('exit', close);
      close();
    },
  };
}

function auditOf(events: PlaneEvents, { process, of }: AuditOptions, write: (record: TrailRecord) => void): () => void {
  const others = of.others ? auditOthers(events, process, write) : undefined;
  const dials = of.dials ? auditDials(events, process, write, others?.passes) : undefined;
  const apiServers = auditApiServers(events, process, write, others?.passes);
  return () => {
    apiServers.end();
    dials?.end();
    others?.end();
  };
}

/** Logs when records have to wait or are lost, and, once writing works again, how many were lost. */
class TrailReport {
  readonly #log: string;
  readonly #means: Means;
  #dropped = 0;
  #troubled = false;

  constructor(log: string, means: Means) {
    this.#log = log;
    this.#means = means;
  }

  failing(reason: string): void {
    // A full pipe has a slow reader. That matters only once records are lost.
    if (reason === 'EAGAIN') return;
    this.#troubled = true;
    this.#say('warn', { reason }, 'audit records cannot be written and are queued');
  }

  works(): void {
    if (!this.#troubled) return;
    this.#troubled = false;
    this.#say('info', { dropped: this.#dropped }, 'audit records are written again');
    this.#dropped = 0;
  }

  kept(reason: string): void {
    this.#say('warn', { reason }, 'audit log cannot be reopened: still writing to the old file');
  }

  lost(records: number, reason?: string): void {
    this.#troubled = true;
    this.#dropped += records;
    this.#means.events.emit('audit:dropped', records);
    this.#say('warn', { dropped: this.#dropped, reason }, 'audit records are lost');
  }

  #say(level: 'info' | 'warn', fields: object, message: string): void {
    const { bursts, logger } = this.#means;
    bursts.say(message, () => logger[level]({ log: this.#log, ...fields }, message));
  }
}

export interface DialAudit {
  /** Writes the records of open tunnels, with their bytes so far. Later dials get no record. */
  end(): void;
}

/**
 * Writes one record for each dial at a gateway, when it fails or when its tunnel has ended. A request that is not a dial gets no
 * record.
 * @param passes whether a dial that the gateway itself refused gets a record; it is counted otherwise. Default: each does
 */
export function auditDials(
  events: PlaneEvents,
  gateway: string,
  write: (record: AuditRecord) => void,
  passes: (kind: string) => boolean = () => true,
): DialAudit {
  /** Dials that were answered with a tunnel, until that tunnel ends. */
  const answers = new WeakMap<DialRequest, Answer>();
  const tunnels = new RandomSet<TunnelInfo>();
  const end = (dial: DialRequest, tunnel: EndedTunnel) => {
    const answer = answers.get(dial);
    if (answer && answers.delete(dial)) write(auditRecord(gateway, dial, answer, tunnel));
  };
  const unsubscribe = subscribe(events, {
    'dial:end'(role, dial, outcome) {
      if (role !== 'gateway') return;
      const answer = { outcome, time: Date.now() - outcome.ms, start: performance.now() - outcome.ms };
      if (!outcome.error) answers.set(dial, answer);
      else if (!isRefusedDial(dial, outcome.error) || passes(`dials of tenant ${dial.tenant}`))
        write(auditRecord(gateway, dial, answer));
    },
    // The destination was reached, but the caller was gone, so no tunnel will report it.
    'dial:undelivered'(dial) {
      const error = new Error('the caller left before the answer');
      end(dial, { ms: 0, up: 0, down: 0, outcome: { how: 'failed', by: 'caller', error } });
    },
    'tunnel:open'(tunnel) {
      if (tunnel.role === 'gateway') tunnels.add(tunnel);
    },
    'tunnel:close'(tunnel, outcome, ms) {
      const { dial, up, down, resumable } = tunnel;
      if (tunnels.delete(tunnel)) end(dial, { ms, up, down, resumable, outcome });
    },
  });
  return {
    end() {
      unsubscribe();
      // A gateway that stops in order has cut them before.
      const by = 'gateway';
      const outcome = { how: 'cut', by, error: new PlaneEnded('the gateway ended', { by }) } as const;
      for (const { dial, up, down, since, resumable } of tunnels)
        end(dial, { ms: Date.now() - since, up, down, resumable, outcome });
      tunnels.clear();
    },
  };
}

/** Writes one record for each connection of a client to its API server, when it has ended, or was refused. */
export function auditApiServers(
  events: PlaneEvents,
  process: string,
  write: (record: OtherRecord) => void,
  passes: (kind: string) => boolean = () => true,
): DialAudit {
  const tunnels = new RandomSet<TunnelInfo>();
  const unsubscribe = subscribe(events, {
    'api-server:failure'(dial, error, ms) {
      if (passes(`API server of tenant ${dial.tenant}`)) write(apiServerRecord(process, dial, { ms, error }));
    },
    'tunnel:open'(tunnel) {
      if (tunnel.role === 'api-server') tunnels.add(tunnel);
    },
    'tunnel:close'(tunnel, outcome, ms) {
      const { dial, up, down } = tunnel;
      if (tunnels.delete(tunnel)) write(apiServerRecord(process, dial, { ms, tunnel: { up, down, ms, outcome } }));
    },
  });
  return {
    end() {
      unsubscribe();
      const outcome = { how: 'cut', by: 'path', error: new PlaneEnded('the process ended') } as const;
      for (const { dial, up, down, since } of tunnels) {
        const ms = Date.now() - since;
        write(apiServerRecord(process, dial, { ms, tunnel: { up, down, ms, outcome } }));
      }
      tunnels.clear();
    },
  };
}

interface OtherAudit {
  /** Returns whether a refusal of this kind gets a record of its own; if not, it is counted. */
  passes(kind: string): boolean;
  /** Writes the counts of refusals without a record. Later events get no record. */
  end(): void;
}

/** Writes records of refusals, sessions, operators' actions and changes of tenants. */
export function auditOthers(events: PlaneEvents, process: string, write: (record: OtherRecord) => void): OtherAudit {
  const base = <Kind extends OtherRecord['record']>(record: Kind) => {
    return { time: new Date().toISOString(), record, process };
  };
  const refusals = new Bursts({ most: TELEMETRY.auditRefusals, windowMs: TELEMETRY.auditRefusalsMs }, (of, count) =>
    write({ ...base('refusals'), of, count }),
  );
  const session = (state: 'opened' | 'closed', info: SessionInfo, reason?: string) => {
    const { sessionId, tenant, agentId, protocol, remote, principal } = info;
    const who = { session: sessionId, tenant, agent: agentId, ...verified(principal), protocol, remote };
    write({ ...base('session'), state, ...who, ...(reason !== undefined && { text: shortened(reason) }) });
  };
  const refused = (where: string, remote: string, error: Error) => {
    const { principal, tenant, rule, destination } = notAuthorisedIn(error) ?? {};
    if (!refusals.pass(refusalKind(where, error))) return;
    const who = { ...(tenant !== undefined && { tenant }), ...verified(principal) };
    const by = rule !== undefined && { rule };
    const to = destination !== undefined && { destination: destination.slice(0, TELEMETRY.auditTextCharacters) };
    write({ ...base('refusal'), where, remote, ...who, ...by, ...to, text: shortened(error.message) });
  };
  const unsubscribe = subscribe(events, {
    ...unlessProbed(refused),
    'session:open': (info) => session('opened', info),
    'session:close': (info, reason) => session('closed', info, reason),
    operation(operation: Operation) {
      const { operator, outcome, text } = operation;
      const kind = `operations of ${operator.tenant === undefined ? 'the plane' : `tenant ${operator.tenant}`}`;
      if (outcome === 'refused' && !refusals.pass(kind)) return;
      write({ ...base('operation'), ...operation, ...(text !== undefined && { text: shortened(text) }) });
    },
    tenants({ changed, gone }) {
      write({
        ...base('tenants'),
        changed: changed.slice(0, TELEMETRY.auditNames),
        gone: gone.slice(0, TELEMETRY.auditNames),
      });
    },
    // A directory of 10,000 files can turn bad at once.
    'tenants:failure'(problem, kept) {
      if (!refusals.pass("tenants' files")) return;
      const tenant = kept !== undefined && { tenant: kept };
      write({ ...base('tenants'), changed: [], gone: [], ...tenant, problem: shortened(problem) });
    },
  });
  return {
    passes: (kind) => refusals.pass(kind),
    end() {
      unsubscribe();
      refusals.end();
    },
  };
}
