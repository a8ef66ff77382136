import { within } from '@isthmus/runtime';
import type { DialRequest } from '@isthmus/tunnel';
import { type Attributes, type Context, ROOT_CONTEXT, trace } from '@opentelemetry/api';
import type { IExportLogsServiceResponse } from '@opentelemetry/otlp-transformer';
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources';
import { BatchLogRecordProcessor, LoggerProvider, type ReadableLogRecord } from '@opentelemetry/sdk-logs';
import { type Exporters, otlpExporter } from '../otlp/exporter.ts';
import { type Exporter, PartlyRejected } from '../otlp/grpc-exporter.ts';
import { known } from '../tracing/attributes.ts';
import { parseTraceparent } from '../tracing/traceparent.ts';
import type { OtherRecord, TrailRecord } from './other-records.ts';
import type { LogSettings } from './otlp-settings.ts';
import type { AuditRecord } from './record.ts';

/** The event names that tell audit records from other logs: `isthmus.dial`, or `isthmus.` and what the record says that it is. */
const EVENT = 'isthmus.';

/** Severities of the logs data model. */
const INFO = { severityNumber: 9, severityText: 'INFO' };
const WARN = { severityNumber: 13, severityText: 'WARN' };

/** A record fits the data model's map type, except that this type requires mutable arrays. */
type LogBody = Parameters<ReturnType<LoggerProvider['getLogger']>['emit']>[0]['body'];

/** How long `end` waits for the last batch, in milliseconds. */
const END_MS = 1000;

/** Called for each batch that was sent, and for lost records. */
export interface ExportReport {
  works(): void;
  /** @param reason why a batch could not be sent; unset if too many records wait */
  dropped(records: number, reason?: string): void;
}

export interface OtlpRecords {
  write(record: TrailRecord, dial?: DialRequest): void;
  /** Sends the waiting records, for at most END_MS. */
  end(): Promise<void>;
}

/** Sends records as OTLP logs, through an SDK instance that is not registered with the process-wide API. */
export async function otlpRecords(
  settings: LogSettings,
  scope: { readonly name: string; readonly version: string },
  attributes: Attributes,
  report: ExportReport,
): Promise<OtlpRecords> {
  const { batch } = settings;
  let waiting = 0;
  const settled = (records: number) => {
    waiting -= records;
  };
  const exporter = counted(await otlpExporter(settings, EXPORTERS), settled, report);
  const provider = new LoggerProvider({
    resource: defaultResource().merge(resourceFromAttributes({ ...attributes, ...settings.resource })),
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
        context: contextOf(dial),
      });
    },
    async end() {
      await within(
        provider.shutdown().catch(() => {}),
        END_MS,
      );
      if (waiting > 0) report.dropped(waiting);
      waiting = 0;
    },
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

function contextOf(dial: DialRequest | undefined): Context {
  const traceparent = dial?.traceparent;
  const span = traceparent === undefined ? undefined : parseTraceparent(traceparent);
  return span ? trace.setSpanContext(ROOT_CONTEXT, span) : ROOT_CONTEXT;
}

const EXPORTERS: Exporters<ReadableLogRecord[], IExportLogsServiceResponse> = {
  'http/protobuf': async () => (await import('@opentelemetry/exporter-logs-otlp-proto')).OTLPLogExporter,
  'http/json': async () => (await import('@opentelemetry/exporter-logs-otlp-http')).OTLPLogExporter,
  grpc: async () => ({
    path: '/opentelemetry.proto.collector.logs.v1.LogsService/Export',
    serializer: (await import('@opentelemetry/otlp-transformer')).ProtobufLogsSerializer,
    size: ({ length }) => length,
    rejected: ({ rejectedLogRecords }) => rejectedLogRecords,
  }),
};

/** Wraps an exporter to report the result of each batch, which the SDK does not. */
function counted(
  exporter: Exporter<ReadableLogRecord[]>,
  settled: (records: number) => void,
  report: ExportReport,
): Exporter<ReadableLogRecord[]> {
  return {
    export(records, done) {
      exporter.export(records, (result) => {
        settled(records.length);
        if (result.code === 0) report.works();
        else report.dropped(lostOf(result.error, records.length), result.error?.message ?? 'export failed');
        done(result);
      });
    },
    forceFlush: () => exporter.forceFlush(),
    shutdown: () => exporter.shutdown(),
  };
}

function lostOf(error: Error | undefined, records: number): number {
  return error instanceof PartlyRejected ? error.rejected : records;
}
