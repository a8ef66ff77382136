import process from 'node:process';
import { inWords } from '@isthmus/tunnel';
import { redactUrl } from '../logging/redact.ts';
import { type Environment, OtelEnvironment } from '../otlp/environment.ts';
import type { ExportLogger } from '../otlp/exporter.ts';
import type { Metrics } from './exposition/families.ts';
import type { MetricSettings } from './otlp-sdk.ts';

const TEMPORALITY = 'OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE';

/**
 * Returns how to export metrics. An endpoint alone does not enable the export, because a collector for spans need not accept metrics.
 * @returns undefined unless OTEL_METRICS_EXPORTER includes `otlp`, or if OTEL_SDK_DISABLED is set
 */
export function metricSettings(env: Environment): MetricSettings | undefined {
  const otel = new OtelEnvironment(env);
  if (otel.disabled || !otel.exports('metrics')) return undefined;
  otel.oneOf(TEMPORALITY, ['cumulative'], otel.read(TEMPORALITY)?.toLowerCase(), 'cumulative');
  const intervalMillis = otel.interval('OTEL_METRIC_EXPORT_INTERVAL', 60_000);
  return {
    ...otel.otlp('metrics'),
    resource: otel.resource(),
    intervalMillis,
    exportTimeoutMillis: Math.min(intervalMillis, otel.interval('OTEL_METRIC_EXPORT_TIMEOUT', 30_000)),
    warnings: otel.warnings,
  };
}

export interface MetricExportOptions {
  readonly program: string;
  readonly version: string;
  /** What the process is in the plane: `gateway`, `hub`, `server`, `agent`. */
  readonly role: string;
  /** The process's own name: `--server-id`, or an agent's id. Without it, the series of two processes could not be told apart. */
  readonly process: string;
  readonly logger: ExportLogger;
  /** OTEL_* variables. Default: those of the process. */
  readonly env?: Environment;
}

/**
 * Exports a program's page of metrics over OTLP if the OTEL_* variables ask for it, and otherwise loads no part of the SDK.
 * @returns a function that exports the last values and ends the export. Bounded in time, never rejects
 */
export async function exportMetrics(
  metrics: Pick<Metrics, 'collect'>,
  { program, version, role, process: instance, logger, env = process.env }: MetricExportOptions,
): Promise<() => Promise<void>> {
  const settings = metricSettings(env);
  if (!settings) return async () => {};
  for (const warning of settings.warnings) logger.warn({}, warning);
  const fields = { protocol: settings.protocol, endpoint: redactUrl(settings.url) };
  const attributes = { 'service.name': program, 'service.version': version, 'service.instance.id': instance };
  try {
    const { startMetricSdk } = await import('./otlp-sdk.ts');
    const scope = { name: 'isthmus', version };
    const resource = { ...attributes, 'isthmus.role': role, ...settings.resource };
    const end = await startMetricSdk(settings, scope, resource, metrics.collect, (failure) => {
      if (failure) logger.warn({ ...fields, error: failure.message }, 'metrics cannot be exported');
      else logger.info(fields, 'metrics are exported again');
    });
    logger.info(fields, 'metrics are exported');
    return end;
  } catch (error) {
    logger.warn({ ...fields, error: inWords(error) }, 'metrics are not exported: bad OTEL_EXPORTER_OTLP settings');
    return async () => {};
  }
}
