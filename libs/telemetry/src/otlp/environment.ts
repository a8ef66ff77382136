import type { GrpcSettings } from './grpc-calls.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

export const PROTOCOLS = ['http/protobuf', 'http/json', 'grpc'] as const;
export type Protocol = (typeof PROTOCOLS)[number];

export type Signal = 'traces' | 'logs' | 'metrics';

/** Where and how a signal is exported. */
export interface OtlpSettings {
  readonly protocol: Protocol;
  /** The target, including the signal's path. */
  readonly url: string;
  /** How long a batch may take to send, retries included. */
  readonly timeoutMillis: number;
  /** Set if the protocol is gRPC. The exporters over HTTP read their other settings from the environment themselves. */
  readonly grpc?: GrpcSettings;
}

/** How items are batched before they are sent. */
export interface BatchSettings {
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

/** A span or a record takes at least half a kilobyte, so a longer queue could use up the program's memory while a collector is down. */
const QUEUE: Range = [1, 1_000_000];

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
      timeoutMillis: this.number(timeout, 10_000, MILLISECONDS),
      ...(protocol === 'grpc' && { grpc: this.#grpc(signal, url) }),
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

  /** @param prefix OTEL_BSP for spans, OTEL_BLRP for log records */
  batch(prefix: 'OTEL_BSP' | 'OTEL_BLRP', delay: number): BatchSettings {
    return {
      scheduledDelayMillis: this.number(`${prefix}_SCHEDULE_DELAY`, delay, MILLISECONDS),
      exportTimeoutMillis: this.number(`${prefix}_EXPORT_TIMEOUT`, 30_000, MILLISECONDS),
      maxQueueSize: this.number(`${prefix}_MAX_QUEUE_SIZE`, 2048, QUEUE),
      maxExportBatchSize: this.number(`${prefix}_MAX_EXPORT_BATCH_SIZE`, 512, QUEUE),
    };
  }

  /** In milliseconds. */
  interval(name: string, fallback: number): number {
    return this.number(name, fallback, INTERVAL);
  }

  /** Returns OTEL_RESOURCE_ATTRIBUTES. OTEL_SERVICE_NAME takes precedence over its `service.name`. */
  resource(): Record<string, string> {
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
