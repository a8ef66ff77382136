export const PROTOCOLS = ['http/protobuf', 'http/json', 'grpc'] as const;
export type Protocol = (typeof PROTOCOLS)[number];

export const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;
export type SamplerName = (typeof SAMPLERS)[number];

/** What the standard OTEL_* variables ask for. */
export interface TraceSettings {
  readonly protocol: Protocol;
  /** Where to, the signal's path included. */
  readonly url: string;
  /** How long a batch may take to send, retries included. */
  readonly timeoutMillis: number;
  readonly sampler: { readonly name: SamplerName; readonly ratio: number };
  /** OTEL_RESOURCE_ATTRIBUTES, with OTEL_SERVICE_NAME over it. */
  readonly resource: Readonly<Record<string, string>>;
  readonly batch: {
    readonly scheduledDelayMillis: number;
    readonly exportTimeoutMillis: number;
    readonly maxQueueSize: number;
    readonly maxExportBatchSize: number;
  };
  /** What was not understood, and what is done in its place. */
  readonly warnings: readonly string[];
}

type Range = readonly [least: number, most: number];

/** What a timer can hold. */
const MILLISECONDS: Range = [0, 2 ** 31 - 1];

/** A span is half a kilobyte or more: beyond this, a dead collector would cost the program its memory. */
const SPANS: Range = [1, 1_000_000];

export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads the OTEL_* variables as the OpenTelemetry specification has them ("SDK environment variables", "OTLP exporter"):
 * an empty value is an unset one, and a bad one is warned of and stands for its default, as tracing must not stop a program.
 * Headers, compression and certificates are left to the exporter, which reads them itself.
 * @returns undefined when nothing asks for traces: no OTLP endpoint and no `OTEL_TRACES_EXPORTER=otlp`, or OTEL_SDK_DISABLED
 */
export function traceSettings(env: Environment): TraceSettings | undefined {
  const warnings: string[] = [];
  const read = (name: string) => env[name]?.trim() || undefined;
  if (read('OTEL_SDK_DISABLED')?.toLowerCase() === 'true') return undefined;
  const own = read('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT');
  const shared = read('OTEL_EXPORTER_OTLP_ENDPOINT');
  const exporters = read('OTEL_TRACES_EXPORTER')
    ?.split(',')
    .map((name) => name.trim());
  if (!(exporters ? exporters.includes('otlp') : own || shared)) return undefined;

  const oneOf = <T extends string>(name: string, known: readonly T[], value: string | undefined, fallback: T): T => {
    const found = known.find((each) => each === value);
    if (value !== undefined && !found)
      warnings.push(`${name}=${value} is none of ${known.join(', ')}: using ${fallback}`);
    return found ?? fallback;
  };
  const number = (name: string, fallback: number, [least, most]: Range): number => {
    const value = read(name);
    if (value === undefined) return fallback;
    const parsed = Number(value);
    if (parsed >= least && parsed <= most) return parsed;
    warnings.push(`${name}=${value} is no number from ${least} to ${most}: using ${fallback}`);
    return fallback;
  };
  const protocol = oneOf(
    'OTEL_EXPORTER_OTLP_PROTOCOL',
    PROTOCOLS,
    read('OTEL_EXPORTER_OTLP_TRACES_PROTOCOL') ?? read('OTEL_EXPORTER_OTLP_PROTOCOL'),
    'http/protobuf',
  );
  return {
    protocol,
    url: own ?? sharedUrl(shared, protocol),
    timeoutMillis: number(
      read('OTEL_EXPORTER_OTLP_TRACES_TIMEOUT') ? 'OTEL_EXPORTER_OTLP_TRACES_TIMEOUT' : 'OTEL_EXPORTER_OTLP_TIMEOUT',
      10_000,
      MILLISECONDS,
    ),
    sampler: {
      name: oneOf('OTEL_TRACES_SAMPLER', SAMPLERS, read('OTEL_TRACES_SAMPLER'), 'parentbased_always_on'),
      ratio: number('OTEL_TRACES_SAMPLER_ARG', 1, [0, 1]),
    },
    resource: {
      ...resourceAttributes(read('OTEL_RESOURCE_ATTRIBUTES'), warnings),
      ...named(read('OTEL_SERVICE_NAME')),
    },
    batch: {
      scheduledDelayMillis: number('OTEL_BSP_SCHEDULE_DELAY', 5000, MILLISECONDS),
      exportTimeoutMillis: number('OTEL_BSP_EXPORT_TIMEOUT', 30_000, MILLISECONDS),
      maxQueueSize: number('OTEL_BSP_MAX_QUEUE_SIZE', 2048, SPANS),
      maxExportBatchSize: number('OTEL_BSP_MAX_EXPORT_BATCH_SIZE', 512, SPANS),
    },
    warnings,
  };
}

/** An endpoint for all signals: HTTP puts the signal's path behind it, gRPC has none. */
function sharedUrl(endpoint: string | undefined, protocol: Protocol): string {
  if (protocol === 'grpc') return endpoint ?? 'http://localhost:4317';
  return `${(endpoint ?? 'http://localhost:4318').replace(/\/$/, '')}/v1/traces`;
}

function named(name: string | undefined): Record<string, string> {
  return name === undefined ? {} : { 'service.name': name };
}

/** `key=value,...` with percent-encoding. One bad entry voids all, as the specification demands. */
function resourceAttributes(list: string | undefined, warnings: string[]): Record<string, string> {
  const attributes: Record<string, string> = {};
  for (const entry of list?.split(',').filter((each) => each.trim() !== '') ?? []) {
    const pair = /^\s*([^=\s]+)\s*=\s*(.*?)\s*$/.exec(entry);
    const value = pair?.[2] === undefined ? undefined : decoded(pair[2]);
    if (pair?.[1] === undefined || value === undefined) {
      warnings.push(`OTEL_RESOURCE_ATTRIBUTES has the bad entry ${JSON.stringify(entry)}: using none of it`);
      return {};
    }
    attributes[pair[1]] = value;
  }
  return attributes;
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
