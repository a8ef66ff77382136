import { type BatchSettings, type Environment, OtelEnvironment, type OtlpSettings } from '../otlp/environment.ts';

export type { Environment };

export const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;
export type SamplerName = (typeof SAMPLERS)[number];

/** The trace settings from the standard OTEL_* variables. */
export interface TraceSettings extends OtlpSettings {
  readonly sampler: { readonly name: SamplerName; readonly ratio: number };
  /** OTEL_RESOURCE_ATTRIBUTES. OTEL_SERVICE_NAME takes precedence over its `service.name`. */
  readonly resource: Readonly<Record<string, string>>;
  readonly batch: BatchSettings;
  /** Which values are invalid, and what is used instead. */
  readonly warnings: readonly string[];
}

/**
 * Returns how to export traces.
 * @returns undefined if they are not enabled (no OTLP endpoint and no `OTEL_TRACES_EXPORTER=otlp`), or if OTEL_SDK_DISABLED is set
 */
export function traceSettings(env: Environment): TraceSettings | undefined {
  const otel = new OtelEnvironment(env);
  if (otel.disabled || !(otel.exports('traces') ?? otel.endpoint('traces') !== undefined)) return undefined;
  return {
    ...otel.otlp('traces'),
    sampler: {
      name: otel.oneOf('OTEL_TRACES_SAMPLER', SAMPLERS, otel.read('OTEL_TRACES_SAMPLER'), 'parentbased_always_on'),
      ratio: otel.number('OTEL_TRACES_SAMPLER_ARG', 1, [0, 1]),
    },
    resource: otel.resource(),
    batch: otel.batch('OTEL_BSP', 5000),
    warnings: otel.warnings,
  };
}
