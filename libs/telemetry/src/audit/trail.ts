import process from 'node:process';
import { inWords, type PlaneEvents } from '@isthmus/tunnel';
import { Bursts } from '../logging/bursts.ts';
import type { Logger } from '../logging/logger.ts';
import { redactUrl } from '../logging/redact.ts';
import type { Environment } from '../otlp/environment.ts';
import { auditDials, type DialAudit } from './dials.ts';
import { LineWriter } from './line-writer.ts';
import { auditOthers } from './others.ts';
import { logSettings } from './otlp-settings.ts';
import { type RecordSink, SinkReport } from './sink.ts';
import { fileTarget, stdoutTarget } from './targets.ts';

/** Limits the lines about one kind of trouble: a disk that is almost full fails and recovers again and again. */
const LINE_BURST = { most: 5, windowMs: 60_000 };

export interface AuditOptions {
  /** The process's own name: `--server-id`, or an agent's id. */
  readonly process: string;
  /** What gets records: a gateway's dials, and all else. */
  readonly of: { readonly dials: boolean; readonly others: boolean };
  /** A path, `-` for standard output, or empty for neither. */
  readonly log: string;
  /** Whether to export records as OTLP logs, unless the environment says otherwise. */
  readonly otlp: boolean;
  readonly program: string;
  readonly role: string;
  readonly version: string;
  readonly logger: Logger;
  /** OTEL_* variables. Default: those of the process. */
  readonly env?: Environment;
}

/** The running audit of a process. */
export interface AuditTrail {
  /** Reopens the file. Call after it was renamed. */
  reopen(): void;
  /** Call when the gateway begins to stop. From then on, tunnels count as closed by the plane. */
  stopping(): void;
  /** Writes the records of open tunnels, and waits until all records are written. Bounded in time, never rejects. */
  close(): Promise<void>;
}

/** What ends a program, and tells it to reopen its files. */
export interface AuditOwner {
  readonly closing: { defer(step: () => unknown): void };
  onHangup(handler: () => void): void;
}

interface Means {
  readonly events: PlaneEvents;
  readonly logger: Logger;
  readonly bursts: Bursts;
}

/** Audits a program until it closes, see `auditTrail`. @returns what to call when it begins to stop */
export async function audited(events: PlaneEvents, options: AuditOptions, owner: AuditOwner): Promise<() => void> {
  const trail = await auditTrail(events, options);
  if (!trail) return () => {};
  owner.closing.defer(trail.close);
  owner.onHangup(trail.reopen);
  return trail.stopping;
}

/** Audits a process as its flags and the OTEL_* variables say. Returns undefined if none of them enables the audit. */
export async function auditTrail(events: PlaneEvents, options: AuditOptions): Promise<AuditTrail | undefined> {
  const { log, logger } = options;
  const bursts = new Bursts(LINE_BURST, (of, count) => logger.warn({ of, count }, 'further lines were dropped'));
  const means = { events, logger, bursts };
  const sinks = [log === '' ? undefined : logSink(log, means), await otlpSink(options, means)].filter(
    (sink) => sink !== undefined,
  );
  if (sinks.length === 0) return undefined;
  const { stopping, end } = auditOf(events, options, (record, dial) => {
    for (const sink of sinks) sink.write(record, dial);
  });
  // After a crash or a second signal, nothing is closed before the process exits.
  const atExit = () => {
    end();
    for (const sink of sinks) sink.endSync();
  };
  process.once('exit', atExit);
  return {
    reopen() {
      for (const sink of sinks) sink.reopen();
    },
    stopping,
    async close() {
      end();
      await Promise.all(sinks.map((sink) => sink.end()));
      // Not earlier: a second signal or a shutdown timeout may end the process during the wait above.
      process.off('exit', atExit);
      bursts.end();
    },
  };
}

function auditOf(events: PlaneEvents, { process, of }: AuditOptions, write: RecordSink['write']): DialAudit {
  const others = of.others ? auditOthers(events, process, (record) => write(record)) : undefined;
  const dials = of.dials ? auditDials(events, process, write, others?.admits) : undefined;
  return {
    stopping: () => dials?.stopping(),
    end() {
      dials?.end();
      others?.end();
    },
  };
}

function logSink(log: string, means: Means): RecordSink {
  const target = log === '-' ? stdoutTarget() : fileTarget(log);
  const writer = new LineWriter(target, new SinkReport('log', { log }, means));
  return {
    write: (record) => writer.write(`${JSON.stringify(record)}\n`),
    reopen: () => writer.reopen(),
    end: () => writer.end(),
    endSync: () => writer.endSync(),
  };
}

/** Loads the SDK only if it is needed. */
async function otlpSink(options: AuditOptions, means: Means): Promise<RecordSink | undefined> {
  const { process: instance, otlp, program, role, version, env = process.env } = options;
  const { logger } = means;
  const settings = logSettings(env, otlp);
  if (!settings) return undefined;
  for (const warning of settings.warnings) logger.warn({}, warning);
  const fields = { protocol: settings.protocol, endpoint: redactUrl(settings.url) };
  const attributes = { 'service.name': program, 'service.version': version, 'service.instance.id': instance };
  const report = new SinkReport('otlp', fields, means);
  try {
    const { otlpRecords } = await import('./otlp.ts');
    const scope = { name: 'isthmus', version };
    const records = await otlpRecords(settings, scope, { ...attributes, 'isthmus.role': role }, report);
    logger.info(fields, 'audit records are exported');
    return { write: records.write, end: records.end, reopen() {}, endSync() {} };
  } catch (error) {
    const text = inWords(error);
    throw new Error(`cannot export audit records: bad OTEL_EXPORTER_OTLP settings: ${text}`, { cause: error });
  }
}
