import { inWords } from '@isthmus/tunnel';
import { TELEMETRY } from '../defaults.ts';
import { redactUrl } from '../logging/logger.ts';
import type { GrpcSettings } from './grpc.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

const PROTOCOLS = ['http/protobuf', 'http/json', 'grpc'] as const;
export type Protocol = (typeof PROTOCOLS)[number];

export type Signal = 'traces' | 'metrics';

/** Where and how a signal is exported. */
export interface OtlpSettings {
  readonly protocol: Protocol;
  /** The target, including the signal's path. */
  readonly url: string;
  /** How long a batch may take to send, retries included. */
  readonly timeoutMillis: number;
  /** Set if the protocol is gRPC. The exporters over HTTP read their other settings from the environment themselves. */
  readonly grpc?: GrpcSettings;
  /** OTEL_RESOURCE_ATTRIBUTES. OTEL_SERVICE_NAME takes precedence over its `service.name`. */
  readonly resource: Readonly<Record<string, string>>;
  /** Which values are invalid, and what is used instead. */
  readonly warnings: readonly string[];
}

/** How items are batched before they are sent. */
interface BatchSettings {
  readonly scheduledDelayMillis: number;
  readonly exportTimeoutMillis: number;
  readonly maxQueueSize: number;
  readonly maxExportBatchSize: number;
}

/** RFC 9110, sections 5.1 and 5.5. */
const FIELD_NAME = /^[!#$%&'*+.^_`|~0-9a-z-]+$/i;
const FIELD_VALUE = /^[\t\x20-\x7e]*$/;

type Range = readonly [least: number, most: number];

/** The range of a timer. */
const MILLISECONDS: Range = [0, 2 ** 31 - 1];

/** The range of an interval, which a timer of 0 would turn into a busy loop. */
const INTERVAL: Range = [1, 2 ** 31 - 1];

const QUEUE: Range = [1, TELEMETRY.mostQueuedItems];

/**
 * Reads the OTEL_* variables as the OpenTelemetry specification defines them ("SDK environment variables", "OTLP exporter"). An empty
 * value counts as unset. A bad value causes a warning and is replaced by the default, since telemetry must not stop a program.
 * For OTLP over HTTP, headers, compression and certificates are not read here: the exporters read them.
 */
export class OtelEnvironment {
  /** Which values are invalid, and what is used instead. */
  readonly warnings: string[] = [];
  readonly #env: Environment;

  constructor(env: Environment) {
    this.#env = env;
  }

  get disabled(): boolean {
    return this.read('OTEL_SDK_DISABLED')?.toLowerCase() === 'true';
  }

  read(name: string): string | undefined {
    return this.#env[name]?.trim() || undefined;
  }

  /** Whether a signal's exporters include OTLP; undefined if the variable is not set. */
  exports(signal: Signal): boolean | undefined {
    const exporters = this.read(`OTEL_${signal.toUpperCase()}_EXPORTER`)?.split(',');
    return exporters?.some((name) => name.trim() === 'otlp');
  }

  /** The signal's own endpoint, or the one for all signals. */
  endpoint(signal: Signal): string | undefined {
    return this.#own(signal, 'ENDPOINT') ?? this.read('OTEL_EXPORTER_OTLP_ENDPOINT');
  }

  otlp(signal: Signal): OtlpSettings {
    const text = this.#own(signal, 'PROTOCOL') ?? this.read('OTEL_EXPORTER_OTLP_PROTOCOL');
    const protocol = this.oneOf('OTEL_EXPORTER_OTLP_PROTOCOL', PROTOCOLS, text, 'http/protobuf');
    const timeout = this.#own(signal, 'TIMEOUT') ? `${ownName(signal)}_TIMEOUT` : 'OTEL_EXPORTER_OTLP_TIMEOUT';
    const url = this.#own(signal, 'ENDPOINT') ?? this.#sharedUrl(signal, protocol);
    return {
      protocol,
      url,
      timeoutMillis: this.number(timeout, TELEMETRY.exportMs, MILLISECONDS),
      ...(protocol === 'grpc' && { grpc: this.#grpc(signal, url) }),
      resource: this.#resource(),
      warnings: this.warnings,
    };
  }

  #grpc(signal: Signal, url: string): GrpcSettings {
    const either = (what: string) => this.#own(signal, what) ?? this.read(`OTEL_EXPORTER_OTLP_${what}`);
    // An endpoint without a scheme uses TLS, unless INSECURE is true.
    const scheme = either('INSECURE')?.toLowerCase() === 'true' ? 'http' : 'https';
    return {
      url: /^https?:\/\//i.test(url) ? url : `${scheme}://${url}`,
      headers: {
        ...this.#headers('OTEL_EXPORTER_OTLP_HEADERS'),
        ...this.#headers(`${ownName(signal)}_HEADERS`),
      },
      gzip: either('COMPRESSION') === 'gzip',
      ca: either('CERTIFICATE'),
      cert: either('CLIENT_CERTIFICATE'),
      key: either('CLIENT_KEY'),
    };
  }

  batch(): BatchSettings {
    return {
      scheduledDelayMillis: this.number('OTEL_BSP_SCHEDULE_DELAY', TELEMETRY.spansMs, MILLISECONDS),
      exportTimeoutMillis: this.number('OTEL_BSP_EXPORT_TIMEOUT', TELEMETRY.batchExportMs, MILLISECONDS),
      maxQueueSize: this.number('OTEL_BSP_MAX_QUEUE_SIZE', TELEMETRY.queuedItems, QUEUE),
      maxExportBatchSize: this.number('OTEL_BSP_MAX_EXPORT_BATCH_SIZE', TELEMETRY.batchItems, QUEUE),
    };
  }

  /** Returns OTEL_RESOURCE_ATTRIBUTES. OTEL_SERVICE_NAME takes precedence over its `service.name`. */
  #resource(): Record<string, string> {
    const name = this.read('OTEL_SERVICE_NAME');
    const attributes = this.#pairs('OTEL_RESOURCE_ATTRIBUTES');
    return name === undefined ? attributes : { ...attributes, 'service.name': name };
  }

  oneOf<T extends string>(name: string, known: readonly T[], value: string | undefined, fallback: T): T {
    const found = known.find((each) => each === value);
    if (value !== undefined && !found)
      this.warnings.push(`${name}=${value} is not one of ${known.join(', ')}: using ${fallback}`);
    return found ?? fallback;
  }

  number(name: string, fallback: number, [least, most]: Range): number {
    const value = this.read(name);
    if (value === undefined) return fallback;
    const parsed = Number(value);
    if (parsed >= least && parsed <= most) return parsed;
    this.warnings.push(`${name}=${value} is not a number from ${least} to ${most}: using ${fallback}`);
    return fallback;
  }

  #own(signal: Signal, what: string): string | undefined {
    return this.read(`${ownName(signal)}_${what}`);
  }

  /** Converts names to lower case, as HTTP/2 requires. Rejects bad headers here: HTTP/2's error would show the value, maybe a secret. */
  #headers(variable: string): Record<string, string> {
    const headers: Record<string, string> = {};
    for (const [name, value] of Object.entries(this.#pairs(variable))) {
      if (FIELD_NAME.test(name) && FIELD_VALUE.test(value)) headers[name.toLowerCase()] = value;
      else this.warnings.push(`${variable} has a header that HTTP cannot carry: using only the others`);
    }
    return headers;
  }

  /** Parses `key=value,...` with percent-encoding. As the specification requires, one bad entry invalidates all. */
  #pairs(name: string): Record<string, string> {
    const pairs: Record<string, string> = {};
    const entries = this.read(name)?.split(',') ?? [];
    for (const entry of entries.filter((each) => each.trim() !== '')) {
      const pair = /^\s*([^=\s]+)\s*=\s*(.*?)\s*$/.exec(entry);
      const value = pair?.[2] === undefined ? undefined : decoded(pair[2]);
      if (pair?.[1] === undefined || value === undefined) {
        // Headers may hold secrets, so they are not shown.
        const shown = name.endsWith('_HEADERS') ? 'a bad entry' : `the bad entry ${JSON.stringify(entry)}`;
        this.warnings.push(`${name} has ${shown}: ignoring all of it`);
        return {};
      }
      pairs[pair[1]] = value;
    }
    return pairs;
  }

  /** Returns the URL for a signal, from the endpoint for all signals. HTTP appends the signal's path; gRPC needs none. */
  #sharedUrl(signal: Signal, protocol: Protocol): string {
    const endpoint = this.read('OTEL_EXPORTER_OTLP_ENDPOINT');
    if (protocol === 'grpc') return endpoint ?? 'http://localhost:4317';
    return `${(endpoint ?? 'http://localhost:4318').replace(/\/$/, '')}/v1/${signal}`;
  }
}

function ownName(signal: Signal): string {
  return `OTEL_EXPORTER_OTLP_${signal.toUpperCase()}`;
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;

/** The trace settings from the standard OTEL_* variables. */
export interface TraceSettings extends OtlpSettings {
  readonly sampler: { readonly name: (typeof SAMPLERS)[number]; readonly ratio: number };
  readonly batch: BatchSettings;
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
    batch: otel.batch(),
  };
}

/** How metrics are exported. */
export interface MetricSettings extends OtlpSettings {
  readonly intervalMillis: number;
  /** How long an export may take, at most the interval. */
  readonly exportTimeoutMillis: number;
}

const TEMPORALITY = 'OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE';

/**
 * Returns how to export metrics. An endpoint alone does not enable the export, because a collector for spans need not accept metrics.
 * @returns undefined unless OTEL_METRICS_EXPORTER includes `otlp`, or if OTEL_SDK_DISABLED is set
 */
export function metricSettings(env: Environment): MetricSettings | undefined {
  const otel = new OtelEnvironment(env);
  if (otel.disabled || !otel.exports('metrics')) return undefined;
  otel.oneOf(TEMPORALITY, ['cumulative'], otel.read(TEMPORALITY)?.toLowerCase(), 'cumulative');
  const intervalMillis = otel.number('OTEL_METRIC_EXPORT_INTERVAL', TELEMETRY.metricsMs, INTERVAL);
  const timeout = otel.number('OTEL_METRIC_EXPORT_TIMEOUT', TELEMETRY.metricsExportMs, INTERVAL);
  return { ...otel.otlp('metrics'), intervalMillis, exportTimeoutMillis: Math.min(intervalMillis, timeout) };
}

/** The part of a pino logger that exports need. */
export interface ExportLogger {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

/** The program that exports. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence over what it says of itself. */
export interface Source {
  /** The program's name: `proxy-server`. */
  readonly program: string;
  readonly version: string;
  /** What the process is in the plane (`gateway`, `hub`, `server`, `agent`): the resource's `isthmus.role`. */
  readonly role: string;
  /** The process's own name: `--server-id`, or an agent's id. Without it, the series of two processes could not be told apart. */
  readonly process?: string;
  readonly logger: ExportLogger;
  /** OTEL_* variables. Default: those of the process. */
  readonly env?: Environment;
}

/** Where a signal goes, as log lines say it. */
export function targetOf({ protocol, url }: OtlpSettings) {
  return { protocol, endpoint: redactUrl(url) };
}

/** Called with the result of each batch. */
export type ExportReport = (failure: Error | undefined) => void;

/**
 * Starts an export, and logs where it goes, when it begins to fail, and when it works again. Bad settings are logged, too.
 * @param what as log lines name it: `traces`
 * @param failing the line for when it begins to fail
 * @returns undefined if the settings are bad
 */
export async function startExport<T>(
  { what, failing }: { readonly what: string; readonly failing: string },
  settings: OtlpSettings,
  logger: ExportLogger,
  start: (report: ExportReport) => Promise<T>,
): Promise<T | undefined> {
  for (const warning of settings.warnings) logger.warn({}, warning);
  const fields = targetOf(settings);
  let failed = false;
  const report = (failure: Error | undefined) => {
    if (failure && !failed) logger.warn({ ...fields, error: failure.message }, failing);
    if (!failure && failed) logger.info(fields, `${what} are exported again`);
    failed = failure !== undefined;
  };
  try {
    const started = await start(report);
    logger.info(fields, `${what} are exported`);
    return started;
  } catch (error) {
    logger.warn({ ...fields, error: inWords(error) }, `${what} are not exported: bad OTEL_EXPORTER_OTLP settings`);
    return undefined;
  }
}
