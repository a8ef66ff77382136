import process from 'node:process';
import { inWords, type PlaneEvents } from '@isthmus/tunnel';
import { Bursts } from '../logging/bursts.ts';
import type { Logger } from '../logging/logger.ts';
import { redactUrl } from '../logging/redact.ts';
import type { Environment } from '../otlp/environment.ts';
import { auditDials } from './dials.ts';
import { LineWriter } from './line-writer.ts';
import { logSettings } from './otlp-settings.ts';
import { type RecordSink, SinkReport } from './sink.ts';
import { fileTarget, stdoutTarget } from './targets.ts';

/** Limits the lines about one kind of trouble: a disk that is almost full fails and recovers again and again. */
const LINES = { most: 5, windowMs: 60_000 };

export interface AuditOptions {
  /** The gateway's own name. */
  readonly gateway: string;
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

/** The running audit of a gateway's dials. */
export interface AuditTrail {
  /** Reopens the file. Call after it was renamed. */
  reopen(): void;
  /** Call when the gateway begins to stop. From then on, tunnels count as closed by the plane. */
  stopping(): void;
  /** Writes the records of open tunnels, and waits until all records are written. Bounded in time, never rejects. */
  close(): Promise<void>;
}

interface Means {
  readonly events: PlaneEvents;
  readonly logger: Logger;
  readonly bursts: Bursts;
}

/** Audits a gateway's dials as its flags and the OTEL_* variables say. Returns undefined if none of them enables the audit. */
export async function auditTrail(events: PlaneEvents, options: AuditOptions): Promise<AuditTrail | undefined> {
  const { gateway, log, logger } = options;
  const bursts = new Bursts(LINES, (of, count) => logger.warn({ of, count }, 'further lines were dropped'));
  const means = { events, logger, bursts };
  const sinks = [log === '' ? undefined : logSink(log, means), await otlpSink(options, means)].filter(
    (sink) => sink !== undefined,
  );
  if (sinks.length === 0) return undefined;
  const dials = auditDials(events, gateway, (record, dial) => {
    for (const sink of sinks) sink.write(record, dial);
  });
  // After a crash or a second signal, nothing is closed before the process exits.
  const atExit = () => {
    dials.end();
    for (const sink of sinks) sink.endSync();
  };
  process.once('exit', atExit);
  return {
    reopen() {
      for (const sink of sinks) sink.reopen();
    },
    stopping: dials.stopping,
    async close() {
      dials.end();
      await Promise.all(sinks.map((sink) => sink.end()));
      // Not earlier: a second signal or a shutdown timeout may end the process during the wait above.
      process.off('exit', atExit);
      bursts.end();
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
  const { gateway, otlp, program, role, version, env = process.env } = options;
  const { logger } = means;
  const settings = logSettings(env, otlp);
  if (!settings) return undefined;
  for (const warning of settings.warnings) logger.warn({}, warning);
  const fields = { protocol: settings.protocol, endpoint: redactUrl(settings.url) };
  const attributes = { 'service.name': program, 'service.version': version, 'service.instance.id': gateway };
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
