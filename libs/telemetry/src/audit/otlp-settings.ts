import { type BatchSettings, type Environment, OtelEnvironment, type OtlpSettings } from '../otlp/environment.ts';

/** How records are exported as OTLP logs. */
export interface LogSettings extends OtlpSettings {
  readonly resource: Readonly<Record<string, string>>;
  readonly batch: BatchSettings;
  readonly warnings: readonly string[];
}

/**
 * How records are to be exported. An endpoint alone does not ask for them, as it does for traces: who has a collector for spans may
 * not want to send it the names of callers.
 * @param asked by a flag; OTEL_LOGS_EXPORTER has the last word
 * @returns undefined when nothing asks for it, or OTEL_LOGS_EXPORTER names others alone, or OTEL_SDK_DISABLED
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
