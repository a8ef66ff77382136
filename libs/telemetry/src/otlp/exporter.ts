import { setTimeout as sleep } from 'node:timers/promises';
import { Backoff, within } from '@isthmus/runtime';
import type { ISerializer } from '@opentelemetry/otlp-transformer';
import { defaultResource, type Resource, resourceFromAttributes } from '@opentelemetry/resources';
import type { ResourceMetrics } from '@opentelemetry/sdk-metrics';
import type { ReadableSpan } from '@opentelemetry/sdk-trace';
import { TELEMETRY } from '../defaults.ts';
import { GrpcCalls, Refused } from './grpc.ts';
import type { OtlpSettings, Protocol, Signal, Source } from './settings.ts';

interface ExportResult {
  readonly code: 0 | 1;
  readonly error?: Error;
}

/** Exports the SDK's batches of spans, log records or metrics. */
interface Exporter<Batch> {
  export(batch: Batch, done: (result: ExportResult) => void): void;
  forceFlush(): Promise<void>;
  shutdown(): Promise<void>;
}

/** What the SDK hands to an exporter. */
interface Batches {
  readonly traces: ReadableSpan[];
  readonly metrics: ResourceMetrics;
}

/** The collector's answer. If it rejected a part of a batch, it has the reason, and a count in the field of the signal. */
interface Response {
  readonly partialSuccess?: {
    readonly errorMessage?: string;
    readonly rejectedSpans?: number;
    readonly rejectedDataPoints?: number;
  };
}

/** The collector's method that takes a signal's batches. */
export interface GrpcMethod<Batch> {
  readonly path: string;
  readonly serializer: ISerializer<Batch, Response>;
  /** Returns how many items a batch has. */
  size(batch: Batch): number;
}

/** How a signal is exported by each protocol. Only the code of the protocol in use is loaded. */
interface Exporters<Batch>
  extends Record<
    Exclude<Protocol, 'grpc'>,
    () => Promise<new (config: { url: string; timeoutMillis: number }) => Exporter<Batch>>
  > {
  readonly grpc: () => Promise<GrpcMethod<Batch>>;
}

const EXPORTERS: { readonly [S in Signal]: Exporters<Batches[S]> } = {
  traces: {
    'http/protobuf': async () => (await import('@opentelemetry/exporter-trace-otlp-proto')).OTLPTraceExporter,
    'http/json': async () => (await import('@opentelemetry/exporter-trace-otlp-http')).OTLPTraceExporter,
    grpc: async () => ({
      path: '/opentelemetry.proto.collector.trace.v1.TraceService/Export',
      serializer: (await import('@opentelemetry/otlp-transformer')).ProtobufTraceSerializer,
      size: ({ length }) => length,
    }),
  },
  metrics: {
    'http/protobuf': async () => (await import('@opentelemetry/exporter-metrics-otlp-proto')).OTLPMetricExporter,
    'http/json': async () => (await import('@opentelemetry/exporter-metrics-otlp-http')).OTLPMetricExporter,
    grpc: async () => ({
      path: '/opentelemetry.proto.collector.metrics.v1.MetricsService/Export',
      serializer: (await import('@opentelemetry/otlp-transformer')).ProtobufMetricsSerializer,
      size: ({ scopeMetrics }) =>
        scopeMetrics.flatMap(({ metrics }) => metrics).reduce((sum, { dataPoints }) => sum + dataPoints.length, 0),
    }),
  },
};

/**
 * Returns an exporter for the SDK.
 * @param ended called with the result of each batch, which the SDK does not report
 * @throws TypeError if the URL is invalid
 */
export async function otlpExporter<S extends Signal>(
  signal: S,
  settings: OtlpSettings,
  ended: (failure: Error | undefined, batch: Batches[S]) => void,
): Promise<Exporter<Batches[S]>> {
  const { protocol, url, timeoutMillis } = settings;
  const exporters = EXPORTERS[signal];
  const exporter =
    protocol === 'grpc'
      ? grpcExporter(settings, await exporters.grpc())
      : new (await exporters[protocol]())({ url, timeoutMillis, ...hostOf(url) });
  return {
    export(batch, done) {
      exporter.export(batch, (result) => {
        const failed = result.error !== undefined || result.code !== 0;
        ended(failed ? (result.error ?? new Error('export failed')) : undefined, batch);
        done(result);
      });
    },
    forceFlush: () => exporter.forceFlush(),
    shutdown: () => exporter.shutdown(),
  };
}

/** Node takes the server name (SNI) from the field host, where no name may have its last dot: see `sniOf`. */
function hostOf(url: string): { readonly headers?: Record<string, string> } {
  const { hostname, port } = new URL(url);
  return hostname.endsWith('.') ? { headers: { host: hostname.replace(/\.+$/, port && `:${port}`) } } : {};
}

/** Returns who exports, and the scope of what the program itself exports. */
export function originOf(
  { program, version, role, process: instance }: Source,
  { resource }: OtlpSettings,
): { readonly resource: Resource; readonly scope: { readonly name: string; readonly version: string } } {
  const attributes = {
    'service.name': program,
    'service.version': version,
    ...(instance !== undefined && { 'service.instance.id': instance }),
    'isthmus.role': role,
    ...resource,
  };
  return {
    resource: defaultResource().merge(resourceFromAttributes(attributes)),
    scope: { name: 'isthmus', version },
  };
}

/** Ends an SDK, which sends what waits. Never rejects: if the last batch fails, only its exporter reports it. */
export async function endSdk(sdk: { shutdown(): Promise<void> }, withinMs: number): Promise<void> {
  await within(
    sdk.shutdown().catch(() => {}),
    withinMs,
  );
}

/** The collector accepted the batch, but rejected some of its items for good. */
export class PartlyRejected extends Error {
  readonly rejected: number;

  constructor(rejected: number, of: number, text = '') {
    super(`the collector rejected ${rejected} of ${of}: ${text}`);
    this.rejected = rejected;
  }
}

/** A timer may fire this much too early by `performance.now()`, in milliseconds. */
const TIMER_EARLY_MS = 5;

/**
 * Exports over OTLP/gRPC. If the collector cannot be reached, or asks for a retry, the export is retried until the settings' timeout.
 * Items that the collector rejects make the export fail.
 * @throws TypeError if the URL is invalid
 */
export function grpcExporter<Batch>(
  { grpc, timeoutMillis }: Pick<OtlpSettings, 'grpc' | 'timeoutMillis'>,
  { path, serializer, size }: GrpcMethod<Batch>,
): Exporter<Batch> {
  if (!grpc) throw new TypeError('the settings are of another protocol');
  const calls = new GrpcCalls(grpc, path);
  const ended = new AbortController();
  const send = async (batch: Batch) => {
    const message = serializer.serializeRequest(batch);
    if (!message) throw new Error('cannot be encoded');
    const answer = await insist(calls, message, timeoutMillis, ended.signal);
    const { partialSuccess: partial } = serializer.deserializeResponse(answer);
    const lost = partial?.rejectedSpans || partial?.rejectedDataPoints;
    if (lost) throw new PartlyRejected(lost, size(batch), partial?.errorMessage);
  };
  return {
    export(batch, done) {
      send(batch).then(
        () => done({ code: 0 }),
        (error: Error) => done({ code: 1, error }),
      );
    },
    async forceFlush() {},
    async shutdown() {
      ended.abort();
      calls.close();
    },
  };
}

/** Sends a batch, and retries until there is a final answer or the time is up. */
async function insist(calls: GrpcCalls, message: Uint8Array, timeoutMs: number, ended: AbortSignal) {
  const deadline = performance.now() + timeoutMs;
  const backoff = new Backoff(TELEMETRY.retryFirstMs, TELEMETRY.retryMostMs);
  let before: unknown;
  for (;;) {
    try {
      return await calls.send(message, deadline - performance.now());
    } catch (error) {
      const pause = backoff.next();
      const final = error instanceof Refused && !error.retryable;
      // If the last try ran out of time, the error of the one before it says more.
      const failure = performance.now() > deadline - TIMER_EARLY_MS ? (before ?? error) : error;
      if (final || ended.aborted || performance.now() + pause >= deadline) throw failure;
      before = error;
      await sleep(pause, undefined, { signal: ended });
    }
  }
}
