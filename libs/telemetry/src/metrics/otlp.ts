import process from 'node:process';
import { metricSettings, type Source, startExport } from '../otlp/settings.ts';
import type { Metrics } from './families.ts';

/**
 * Exports a program's page of metrics over OTLP if the OTEL_* variables ask for it, and otherwise loads no part of the SDK.
 * @returns a function that exports the last values and ends the export. Bounded in time, never rejects
 */
export async function exportMetrics(
  { collect }: Pick<Metrics, 'collect'>,
  source: Source,
): Promise<() => Promise<void>> {
  const settings = metricSettings(source.env ?? process.env);
  const lines = { what: 'metrics', failing: 'metrics cannot be exported' };
  const end =
    settings &&
    (await startExport(lines, settings, source.logger, async (report) => {
      const { startMetricSdk } = await import('./otlp-sdk.ts');
      return startMetricSdk(settings, source, collect, report);
    }));
  return end ?? (async () => {});
}
