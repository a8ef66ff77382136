import process from 'node:process';
import { RandomSet } from '@isthmus/runtime';
import {
  type DialRequest,
  isRefusedDial,
  PlaneEnded,
  type PlaneEvents,
  type TunnelInfo,
  type TunnelOutcome,
  unlessProbed,
} from '@isthmus/tunnel';
import { TELEMETRY } from '../defaults.ts';
import { type Subscriptions, subscribe } from '../events.ts';
import { Bursts, flapBursts, refusalKind } from '../logging/bursts.ts';
import { LineSink, withoutWaiting } from '../logging/line-sink.ts';
import type { Logger } from '../logging/logger.ts';
import { type Answer, auditRecord, type EndedTunnel, otherRecords, type TrailRecord } from './records.ts';

export interface AuditOptions {
  /** `--server-id`, or an agent's id. */
  readonly process: string;
  /** What gets records: a gateway's dials, and all else. */
  readonly of: { readonly dials: boolean; readonly others: boolean };
  /** A path, `-` for standard output, or empty for neither. */
  readonly log: string;
  readonly logger: Logger;
}

const STDOUT = 1;

/** Audits a process as its flags say. Returns undefined if they do not enable the audit. */
export function auditTrail(events: PlaneEvents, options: AuditOptions) {
  const { log, logger } = options;
  if (log === '') return undefined;
  const bursts = flapBursts(logger);
  const report = trailReport(log, events, logger, bursts);
  const sink = new LineSink(log === '-' ? withoutWaiting(STDOUT) : log, TELEMETRY.auditQueueBytes, report);
  const { process: name, of } = options;
  const written = audit(events, name, of, (record) => sink.write(`${JSON.stringify(record)}\n`));
  const close = () => {
    written.end();
    const left = sink.exit();
    if (left > 0) report.lost(left);
    bursts.end();
  };
  // After a crash or a second signal, nothing is closed before the process exits.
  process.once('exit', close);
  return {
    /** Reopens the file. Call after it was renamed. */
    reopen: () => sink.reopen(),
    /** Writes the records of open tunnels, and all that wait. Bounded in time, never throws. */
    close() {
      process.off('exit', close);
      close();
    },
  };
}

/** Logs when records have to wait or are lost, and, once writing works again, how many were lost. */
function trailReport(log: string, events: PlaneEvents, logger: Logger, bursts: Bursts) {
  let [dropped, troubled] = [0, false];
  const say = (level: 'info' | 'warn', fields: object, message: string) =>
    bursts.say(message, () => logger[level]({ log, ...fields }, message));
  return {
    failing(reason: string) {
      // A full pipe has a slow reader. That matters only once records are lost.
      if (reason === 'EAGAIN') return;
      troubled = true;
      say('warn', { reason }, 'audit records cannot be written and are queued');
    },
    works() {
      if (!troubled) return;
      troubled = false;
      say('info', { dropped }, 'audit records are written again');
      dropped = 0;
    },
    kept: (reason: string) => say('warn', { reason }, 'audit log cannot be reopened: still writing to the old file'),
    lost(records: number, reason?: string) {
      troubled = true;
      dropped += records;
      events.emit('audit:dropped', records);
      say('warn', { dropped, reason }, 'audit records are lost');
    },
  };
}

/** What passes writes a record of its own; what does not is counted. */
interface Writing {
  readonly process: string;
  readonly write: (record: TrailRecord) => void;
  readonly records: ReturnType<typeof otherRecords>;
  readonly passes: (kind: string) => boolean;
}

/**
 * Writes one record for each connection of a client to its API server, and as `of` says, for each dial at a gateway, and for refusals, sessions,
 * operators' actions and changes of tenants.
 * @returns what ends it: open tunnels get their records, with their bytes so far
 */
export function audit(
  events: PlaneEvents,
  process: string,
  of: AuditOptions['of'],
  write: (record: TrailRecord) => void,
): { end(): void } {
  const records = otherRecords(process);
  const refusals = new Bursts(TELEMETRY.auditRefusals, (kind, count) => write(records.refusals(kind, count)));
  const writing = { process, write, records, passes: (kind: string) => !of.others || refusals.pass(kind) };
  const tunnels = new RandomSet<TunnelInfo>();
  const dials = dialLines(writing);
  const ended = ({ role, dial, up, down, resumable }: TunnelInfo, ms: number, outcome: TunnelOutcome) => {
    const tunnel = { ms, up, down, resumable, outcome };
    if (role === 'api-server') write(records.apiServer(dial, ms, tunnel));
    else dials.ended(dial, tunnel);
  };
  const unsubscribe = [
    {
      'api-server:failure'(dial, error, ms) {
        if (writing.passes(`API server of tenant ${dial.tenant}`)) write(records.apiServer(dial, ms, error));
      },
      'tunnel:open'(tunnel) {
        if (tunnel.role === 'api-server' || (of.dials && tunnel.role === 'gateway')) tunnels.add(tunnel);
      },
      'tunnel:close'(tunnel, outcome, ms) {
        if (tunnels.delete(tunnel)) ended(tunnel, ms, outcome);
      },
    } satisfies Subscriptions,
    ...(of.dials ? [dials.lines] : []),
    ...(of.others ? [otherLines(writing)] : []),
  ].map((lines) => subscribe(events, lines));
  return {
    end() {
      for (const each of unsubscribe) each();
      for (const tunnel of tunnels) {
        // A process that stops in order has cut them before.
        const [who, by] =
          tunnel.role === 'gateway' ? (['gateway', 'gateway'] as const) : (['process', 'path'] as const);
        const error = new PlaneEnded(`the ${who} ended`, { by });
        ended(tunnel, Date.now() - tunnel.since, { how: 'cut', by, error });
      }
      tunnels.clear();
      refusals.end();
    },
  };
}

/** A dial is written when it fails, or when its tunnel has ended. A request that is not a dial gets no record. */
function dialLines({ process, write, passes }: Writing) {
  /** Dials that were answered with a tunnel, until that tunnel ends. */
  const answers = new WeakMap<DialRequest, Answer>();
  const ended = (dial: DialRequest, tunnel: EndedTunnel) => {
    const answer = answers.get(dial);
    if (answer && answers.delete(dial)) write(auditRecord(process, dial, answer, tunnel));
  };
  const lines: Subscriptions = {
    'dial:end'(role, dial, outcome) {
      if (role !== 'gateway') return;
      const answer = { outcome, time: Date.now() - outcome.ms, start: performance.now() - outcome.ms };
      if (!outcome.error) answers.set(dial, answer);
      else if (!isRefusedDial(dial, outcome.error) || passes(`dials of tenant ${dial.tenant}`))
        write(auditRecord(process, dial, answer));
    },
    // The destination was reached, but the caller was gone, so no tunnel will report it.
    'dial:undelivered'(dial) {
      const error = new Error('the caller left before the answer');
      ended(dial, { ms: 0, up: 0, down: 0, outcome: { how: 'failed', by: 'caller', error } });
    },
  };
  return { lines, ended };
}

function otherLines({ write, records, passes }: Writing): Subscriptions {
  return {
    ...unlessProbed((where, remote, error) => {
      if (passes(refusalKind(where, error))) write(records.refusal(where, remote, error));
    }),
    'session:open': (info) => write(records.session('opened', info)),
    'session:close': (info, reason) => write(records.session('closed', info, reason)),
    operation(operation) {
      const { operator, outcome } = operation;
      const kind = `operations of ${operator.tenant === undefined ? 'the plane' : `tenant ${operator.tenant}`}`;
      if (outcome !== 'refused' || passes(kind)) write(records.operation(operation));
    },
    tenants: ({ changed, gone }) => write(records.tenants(changed, gone)),
    // A directory of 10,000 files can turn bad at once.
    'tenants:failure'(problem, kept) {
      if (passes("tenants' files")) write(records.tenants([], [], problem, kept));
    },
  };
}
