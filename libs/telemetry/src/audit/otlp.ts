import type { DialRequest } from '@isthmus/tunnel';
import type { Attributes } from '@opentelemetry/api';
import { BatchLogRecordProcessor, LoggerProvider } from '@opentelemetry/sdk-logs';
import { TELEMETRY } from '../defaults.ts';
import { endSdk, originOf, otlpExporter, PartlyRejected } from '../otlp/exporter.ts';
import type { LogSettings, Source } from '../otlp/settings.ts';
import { contextOf, known } from '../tracing/spans.ts';
import type { AuditRecord, OtherRecord, RecordSink, TrailRecord } from './records.ts';

/** The event names that tell audit records from other logs: `isthmus.dial`, or `isthmus.` and what the record says that it is. */
const EVENT = 'isthmus.';

/** Severities of the logs data model. */
const INFO = { severityNumber: 9, severityText: 'INFO' };
const WARN = { severityNumber: 13, severityText: 'WARN' };

/** A record fits the data model's map type, except that this type requires mutable arrays. */
type LogBody = Parameters<ReturnType<LoggerProvider['getLogger']>['emit']>[0]['body'];

/**
 * Sends records as OTLP logs, through an SDK instance that is not registered with the process-wide API. Its `end` sends the waiting
 * records, for at most `TELEMETRY.auditEndMs`.
 * @param report called for each batch that was sent, and for lost records. Without a reason, too many records wait
 */
export async function otlpRecords(
  settings: LogSettings,
  source: Source,
  report: { works(): void; dropped(records: number, reason?: string): void },
): Promise<RecordSink> {
  const { batch } = settings;
  let waiting = 0;
  const exporter = await otlpExporter('logs', settings, (failure, records) => {
    waiting -= records.length;
    if (!failure) report.works();
    else report.dropped(failure instanceof PartlyRejected ? failure.rejected : records.length, failure.message);
  });
  const { resource, scope } = originOf(source, settings);
  const provider = new LoggerProvider({
    resource,
    processors: [new BatchLogRecordProcessor({ exporter, ...batch })],
  });
  const logger = provider.getLogger(scope.name, scope.version);
  return {
    write(record, dial) {
      // The SDK's own queue has the same length, and drops records silently when it is full.
      if (waiting >= batch.maxQueueSize) {
        report.dropped(1);
        return;
      }
      waiting++;
      logger.emit({
        eventName: EVENT + ('record' in record ? record.record : 'dial'),
        timestamp: new Date(record.time),
        ...(isGood(record) ? INFO : WARN),
        body: record as unknown as LogBody,
        attributes: 'record' in record ? otherAttributes(record) : attributesOf(record, dial),
        context: contextOf(dial?.traceparent),
      });
    },
    async end() {
      await endSdk(provider, TELEMETRY.auditEndMs);
      if (waiting > 0) report.dropped(waiting);
      waiting = 0;
    },
    reopen() {},
    endSync() {},
  };
}

/** Returns the attributes that collectors index by. They have the same names as in spans. */
function attributesOf(record: AuditRecord, dial: DialRequest | undefined): Attributes {
  return known({
    'server.address': dial?.destination.host,
    'server.port': dial?.destination.port,
    'error.type': record.outcome === 'established' ? undefined : record.outcome,
    'isthmus.dial.id': record.dial,
    'isthmus.tenant': record.tenant,
    'isthmus.caller.via': record.caller?.via,
    'isthmus.caller.identity': record.caller?.identity,
    'isthmus.agent.id': record.agent,
    'isthmus.hub.id': record.hub,
    'isthmus.session.id': record.session,
  });
}

function otherAttributes(record: OtherRecord): Attributes {
  const { tenant, agent, session } = { tenant: undefined, agent: undefined, session: undefined, ...record };
  return known({ 'isthmus.tenant': tenant, 'isthmus.agent.id': agent, 'isthmus.session.id': session });
}

/** Whether nothing failed and nobody was refused. */
function isGood(record: TrailRecord): boolean {
  if (!('record' in record)) return record.outcome === 'established';
  if (record.record === 'operation') return record.outcome === 'done';
  if (record.record === 'tenants') return record.problem === undefined;
  return record.record === 'session';
}
