import { within } from '@isthmus/runtime';
import type { Attributes, SpanContext, Tracer } from '@opentelemetry/api';
import type { IExportTraceServiceResponse } from '@opentelemetry/otlp-transformer';
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  type IdGenerator,
  ParentBasedSampler,
  type ReadableSpan,
  type Sampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
  type TracerProviderOptions,
} from '@opentelemetry/sdk-trace';
import { type Exporters, type ExportReport, otlpExporter, reporting } from '../otlp/exporter.ts';
import type { StartAs } from './kept.ts';
import type { TraceSettings } from './settings.ts';

/** How long a stopping program waits for its last spans to be sent, in milliseconds. */
const SHUTDOWN_MS = 3000;

export interface Sdk {
  readonly tracer: Tracer;
  /** Bypasses the sampler, but uses the same queue. */
  readonly startAs: StartAs;
  /** Sends the queued spans, for at most SHUTDOWN_MS. */
  shutdown(): Promise<void>;
}

/**
 * Starts an OpenTelemetry SDK that is not registered with the process-wide API. Spans are queued and sent in batches. If the collector
 * does not accept them and the queue is full, further spans are dropped.
 */
export async function startSdk(
  settings: TraceSettings,
  scope: { readonly name: string; readonly version: string },
  attributes: Attributes,
  report: ExportReport,
): Promise<Sdk> {
  const exporter = reporting(await otlpExporter(settings, EXPORTERS), report);
  const common: TracerProviderOptions = {
    resource: defaultResource().merge(resourceFromAttributes({ ...attributes, ...settings.resource })),
    spanProcessors: [new BatchSpanProcessor({ exporter, ...settings.batch })],
  };
  const provider = new TracerProvider({ ...common, sampler: sampler(settings.sampler) });
  const ids = new GivenIds();
  const unsampled = new TracerProvider({ ...common, sampler: new AlwaysOnSampler(), idGenerator: ids });
  const kept = unsampled.getTracer(scope.name, scope.version);
  return {
    tracer: provider.getTracer(scope.name, scope.version),
    startAs(given, name, options, parent) {
      ids.given = given;
      return kept.startSpan(name, options, parent);
    },
    async shutdown() {
      // If the last batch fails, only `report` is called.
      await within(
        provider.shutdown().catch(() => {}),
        SHUTDOWN_MS,
      );
    },
  };
}

/** Returns the ids in `given`. The SDK asks for ids while it starts a span, so set them right before. */
class GivenIds implements IdGenerator {
  given: Pick<SpanContext, 'traceId' | 'spanId'> = { traceId: '', spanId: '' };
  generateTraceId = () => this.given.traceId;
  generateSpanId = () => this.given.spanId;
}

const EXPORTERS: Exporters<ReadableSpan[], IExportTraceServiceResponse> = {
  'http/protobuf': async () => (await import('@opentelemetry/exporter-trace-otlp-proto')).OTLPTraceExporter,
  'http/json': async () => (await import('@opentelemetry/exporter-trace-otlp-http')).OTLPTraceExporter,
  grpc: async () => ({
    path: '/opentelemetry.proto.collector.trace.v1.TraceService/Export',
    serializer: (await import('@opentelemetry/otlp-transformer')).ProtobufTraceSerializer,
    size: ({ length }) => length,
    rejected: ({ rejectedSpans }) => rejectedSpans,
  }),
};

function sampler({ name, ratio }: TraceSettings['sampler']): Sampler {
  switch (name) {
    case 'always_on':
      return new AlwaysOnSampler();
    case 'always_off':
      return new AlwaysOffSampler();
    case 'traceidratio':
      return new TraceIdRatioBasedSampler(ratio);
    case 'parentbased_always_on':
      return new ParentBasedSampler({ root: new AlwaysOnSampler() });
    case 'parentbased_always_off':
      return new ParentBasedSampler({ root: new AlwaysOffSampler() });
    case 'parentbased_traceidratio':
      return new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(ratio) });
  }
}
