import { diag, type SpanContext } from '@opentelemetry/api';
import { getNumberFromEnv, getStringFromEnv } from '@opentelemetry/core';
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
import { endSdk, numberOf, type OtlpExporter, originOf } from '../otlp/exporter.ts';
import type { Source } from '../otlp/settings.ts';
import type { StartAs } from './spans.ts';

/**
 * Starts an OpenTelemetry SDK that is not registered with the process-wide API. Spans are queued and sent in batches. If the collector
 * does not accept them and the queue is full, further spans are dropped.
 */
export function startSdk(exporter: OtlpExporter<'traces'>, source: Source) {
  const { resource, scope } = originOf(source);
  const processor = new BatchSpanProcessor({
    exporter,
    scheduledDelayMillis: numberOf('OTEL_BSP_SCHEDULE_DELAY', TELEMETRY.spansMs),
    exportTimeoutMillis: numberOf('OTEL_BSP_EXPORT_TIMEOUT', TELEMETRY.batchExportMs),
    maxQueueSize: numberOf('OTEL_BSP_MAX_QUEUE_SIZE', TELEMETRY.queuedItems),
    maxExportBatchSize: numberOf('OTEL_BSP_MAX_EXPORT_BATCH_SIZE', TELEMETRY.batchItems),
  });
  const common: TracerProviderOptions = { resource, spanProcessors: [processor] };
  const provider = new TracerProvider({ ...common, sampler: sampler() });
  const ids = new GivenIds();
  const unsampled = new TracerProvider({ ...common, sampler: new AlwaysOnSampler(), idGenerator: ids });
  const kept = unsampled.getTracer(scope.name, scope.version);
  // Bypasses the sampler, but uses the same queue.
  const startAs: StartAs = (given, name, options, parent) => {
    ids.given = given;
    return kept.startSpan(name, options, parent);
  };
  return {
    tracer: provider.getTracer(scope.name, scope.version),
    startAs,
    /** Sends the queued spans, for at most `TELEMETRY.shutdownMs`. */
    shutdown: () => endSdk(provider),
  };
}

/** Returns the ids in `given`. The SDK asks for ids while it starts a span, so set them right before. */
class GivenIds implements IdGenerator {
  given: Pick<SpanContext, 'traceId' | 'spanId'> = { traceId: '', spanId: '' };
  generateTraceId = () => this.given.traceId;
  generateSpanId = () => this.given.spanId;
}

/** The samplers by the names of OTEL_TRACES_SAMPLER, for traces without a parent, and whether a parent decides for the others. */
function sampler(): Sampler {
  const name = getStringFromEnv('OTEL_TRACES_SAMPLER') ?? 'parentbased_always_on';
  const [, parent, root] = /^(parentbased_)?(always_on|always_off|traceidratio)$/.exec(name) ?? [];
  if (root === undefined) diag.warn(`OTEL_TRACES_SAMPLER=${name} is unknown, using parentbased_always_on`);
  const own = rootSampler(root);
  return root !== undefined && parent === undefined ? own : new ParentBasedSampler({ root: own });
}

function rootSampler(name: string | undefined): Sampler {
  if (name === 'always_off') return new AlwaysOffSampler();
  if (name === 'traceidratio') return new TraceIdRatioBasedSampler(getNumberFromEnv('OTEL_TRACES_SAMPLER_ARG') ?? 1);
  return new AlwaysOnSampler();
}
