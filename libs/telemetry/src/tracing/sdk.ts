import type { SpanContext, Tracer } from '@opentelemetry/api';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  type IdGenerator,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
  type TracerProviderOptions,
} from '@opentelemetry/sdk-trace';
import { TELEMETRY } from '../defaults.ts';
import { endSdk, originOf, otlpExporter } from '../otlp/exporter.ts';
import type { ExportReport, Source, TraceSettings } from '../otlp/settings.ts';
import type { StartAs } from './spans.ts';

export interface Sdk {
  readonly tracer: Tracer;
  /** Bypasses the sampler, but uses the same queue. */
  readonly startAs: StartAs;
  /** Sends the queued spans, for at most `TELEMETRY.shutdownMs`. */
  shutdown(): Promise<void>;
}

/**
 * Starts an OpenTelemetry SDK that is not registered with the process-wide API. Spans are queued and sent in batches. If the collector
 * does not accept them and the queue is full, further spans are dropped.
 */
export async function startSdk(settings: TraceSettings, source: Source, report: ExportReport): Promise<Sdk> {
  const { resource, scope } = originOf(source, settings);
  const exporter = await otlpExporter('traces', settings, report);
  const common: TracerProviderOptions = {
    resource,
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
    shutdown: () => endSdk(provider, TELEMETRY.shutdownMs),
  };
}

/** Returns the ids in `given`. The SDK asks for ids while it starts a span, so set them right before. */
class GivenIds implements IdGenerator {
  given: Pick<SpanContext, 'traceId' | 'spanId'> = { traceId: '', spanId: '' };
  generateTraceId = () => this.given.traceId;
  generateSpanId = () => this.given.spanId;
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
