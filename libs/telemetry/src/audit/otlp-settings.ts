import { type BatchSettings, type Environment, OtelEnvironment, type OtlpSettings } from '../otlp/environment.ts';

/** How records are exported as OTLP logs. */
export interface LogSettings extends OtlpSettings {
  readonly resource: Readonly<Record<string, string>>;
  readonly batch: BatchSettings;
  readonly warnings: readonly string[];
}

/**
 * Returns how to export records. Unlike with traces, an endpoint alone does not enable the export: an operator who has a collector for
 * spans may not want to send it the names of callers.
 * @param asked whether a flag asks for it; OTEL_LOGS_EXPORTER takes precedence
 * @returns undefined if nothing asks for it, if OTEL_LOGS_EXPORTER names only other exporters, or if OTEL_SDK_DISABLED is set
 */
export function logSettings(env: Environment, asked: boolean): LogSettings | undefined {
  const otel = new OtelEnvironment(env);
  if (otel.disabled || !(otel.exports('logs') ?? asked)) return undefined;
  return {
    ...otel.otlp('logs'),
    resource: otel.resource(),
    batch: otel.batch('OTEL_BLRP', 1000),
    warnings: otel.warnings,
  };
}
