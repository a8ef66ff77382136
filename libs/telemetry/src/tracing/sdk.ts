import { within } from '@isthmus/runtime';
import type { Attributes, SpanContext, Tracer } from '@opentelemetry/api';
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  type IdGenerator,
  ParentBasedSampler,
  type Sampler,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
  type TracerProviderOptions,
} from '@opentelemetry/sdk-trace';
import type { Protocol } from '../otlp/environment.ts';
import type { StartAs } from './kept.ts';
import type { TraceSettings } from './settings.ts';

/** Called when exporting begins to fail, and when it works again. */
export type ExportReport = (failure: Error | undefined) => void;

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
  const exporter = reporting(await otlpExporter(settings), report);
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

const EXPORTERS: Readonly<
  Record<
    Exclude<Protocol, 'grpc'>,
    () => Promise<{ OTLPTraceExporter: new (config: { url: string; timeoutMillis: number }) => SpanExporter }>
  >
> = {
  'http/protobuf': () => import('@opentelemetry/exporter-trace-otlp-proto'),
  'http/json': () => import('@opentelemetry/exporter-trace-otlp-http'),
};

const GRPC_METHOD = '/opentelemetry.proto.collector.trace.v1.TraceService/Export';

async function otlpExporter(settings: TraceSettings): Promise<SpanExporter> {
  const { protocol, url, timeoutMillis } = settings;
  if (protocol === 'grpc') {
    const { grpcExporter } = await import('../otlp/grpc-exporter.ts');
    const { ProtobufTraceSerializer } = await import('@opentelemetry/otlp-transformer');
    return grpcExporter(settings, GRPC_METHOD, ProtobufTraceSerializer, ({ rejectedSpans }) => rejectedSpans);
  }
  const { OTLPTraceExporter } = await EXPORTERS[protocol]();
  return new OTLPTraceExporter({ url, timeoutMillis });
}

/** Reports when an exporter begins to fail and when it works again. The SDK does not report an exporter's failures. */
function reporting(exporter: SpanExporter, report: ExportReport): SpanExporter {
  let failing = false;
  return {
    export(spans, done) {
      exporter.export(spans, (result) => {
        const failed = result.error !== undefined || result.code !== 0;
        if (failed !== failing) report(failed ? (result.error ?? new Error('export failed')) : undefined);
        failing = failed;
        done(result);
      });
    },
    forceFlush: () => exporter.forceFlush?.() ?? Promise.resolve(),
    shutdown: () => exporter.shutdown(),
  };
}

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
