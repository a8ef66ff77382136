import { type HrTime, ValueType } from '@opentelemetry/api';
import {
  AggregationTemporality,
  type DataPoint,
  DataPointType,
  type Histogram,
  MeterProvider,
  type MetricData,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { TELEMETRY } from '../defaults.ts';
import { endSdk, numberOf, type OtlpExporter, originOf } from '../otlp/exporter.ts';
import type { Source } from '../otlp/settings.ts';
import { type Bucket, countOf, type Family, type Sample } from './exposition.ts';

/**
 * Starts an OpenTelemetry SDK that is not registered with the process-wide API. It has no instruments: at each export it reads the
 * families that the page of metrics also shows, so that both have the same names, values and buckets.
 * @returns a function that exports the last values and ends the SDK, within `TELEMETRY.shutdownMs`
 */
export function startMetricSdk(
  exporter: OtlpExporter<'metrics'>,
  source: Source,
  collect: () => Promise<readonly Family[]>,
): () => Promise<void> {
  const { resource, scope } = originOf(source);
  const families = {
    async collect() {
      const metrics = metricsOf(await collect(), hrTime(Date.now()));
      return { resourceMetrics: { resource, scopeMetrics: [{ scope, metrics }] }, errors: [] };
    },
  };
  const exportIntervalMillis = numberOf('OTEL_METRIC_EXPORT_INTERVAL', TELEMETRY.metricsMs);
  const timeout = numberOf('OTEL_METRIC_EXPORT_TIMEOUT', TELEMETRY.metricsExportMs);
  const reader = new PeriodicExportingMetricReader({
    exporter,
    exportIntervalMillis,
    exportTimeoutMillis: Math.min(exportIntervalMillis, timeout),
    metricProducers: [families],
  });
  const provider = new MeterProvider({ resource, readers: [reader] });
  return () => endSdk(provider);
}

/** Counters begin with the process. */
const START = hrTime(performance.timeOrigin);

/** Returns families as the SDK's data. Families without a finite value are left out, because JSON cannot carry other numbers. */
function metricsOf(families: readonly Family[], now: HrTime): MetricData[] {
  return families.map((family) => metricOf(family, now)).filter(({ dataPoints }) => dataPoints.length > 0);
}

function metricOf({ name, help: description, type, samples }: Family, endTime: HrTime): MetricData {
  const common = {
    descriptor: { name, description, unit: '', valueType: ValueType.DOUBLE },
    aggregationTemporality: AggregationTemporality.CUMULATIVE,
  };
  const point = <T>(labels: Sample['labels'], value: T): DataPoint<T> => {
    return { startTime: START, endTime, attributes: textOf(labels), value };
  };
  if (type === 'histogram') {
    const dataPoints = samples.map(({ labels, value, buckets = [] }) => point(labels, histogramOf(value, buckets)));
    return { ...common, dataPointType: DataPointType.HISTOGRAM, dataPoints };
  }
  const finite = samples.filter(({ value }) => Number.isFinite(value));
  const dataPoints = finite.map(({ labels, value }) => point(labels, value));
  if (type === 'gauge') return { ...common, dataPointType: DataPointType.GAUGE, dataPoints };
  return { ...common, dataPointType: DataPointType.SUM, isMonotonic: true, dataPoints };
}

function histogramOf(sum: number, buckets: readonly Bucket[]): Histogram {
  const counts = buckets.map(({ count }, index) => count - (buckets[index - 1]?.count ?? 0));
  // Infinity, the last bound, is implied.
  const boundaries = buckets.slice(0, -1).map(({ le }) => le);
  return { buckets: { boundaries, counts }, sum, count: countOf(buckets) };
}

function textOf(labels: Sample['labels']): Record<string, string> {
  return Object.fromEntries(Object.entries(labels).map(([name, value]) => [name, String(value)]));
}

/** @param ms milliseconds since the epoch */
function hrTime(ms: number): HrTime {
  return [Math.trunc(ms / 1000), Math.trunc((ms % 1000) * 1e6)];
}
