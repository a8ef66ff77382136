import { within } from '@isthmus/runtime';
import { inWords } from '@isthmus/tunnel';
import { DiagLogLevel, diag } from '@opentelemetry/api';
import { getNumberFromEnv } from '@opentelemetry/core';
import {
  defaultResource,
  detectResources,
  envDetector,
  type Resource,
  resourceFromAttributes,
} from '@opentelemetry/resources';
import type { PushMetricExporter } from '@opentelemetry/sdk-metrics';
import type { SpanExporter } from '@opentelemetry/sdk-trace';
import { TELEMETRY } from '../defaults.ts';
import { flapBursts } from '../logging/bursts.ts';
import { redactUrl } from '../logging/logger.ts';
import { type ExportLogger, type Signal, type Source, signalVariable } from './settings.ts';

interface Exporters {
  readonly traces: SpanExporter;
  readonly metrics: PushMetricExporter;
}

/** An exporter of OpenTelemetry's. It reads its endpoint, headers, certificates and times from the OTEL_EXPORTER_OTLP_* variables. */
export type OtlpExporter<S extends Signal> = Exporters[S];

type Protocol = 'http/protobuf' | 'http/json' | 'grpc';

/** Only the code of the protocol in use is loaded. */
const EXPORTERS: { readonly [S in Signal]: Readonly<Record<Protocol, () => Promise<new () => Exporters[S]>>> } = {
  traces: {
    'http/protobuf': async () => (await import('@opentelemetry/exporter-trace-otlp-proto')).OTLPTraceExporter,
    'http/json': async () => (await import('@opentelemetry/exporter-trace-otlp-http')).OTLPTraceExporter,
    grpc: async () => (await import('@opentelemetry/exporter-trace-otlp-grpc')).OTLPTraceExporter,
  },
  metrics: {
    'http/protobuf': async () => (await import('@opentelemetry/exporter-metrics-otlp-proto')).OTLPMetricExporter,
    'http/json': async () => (await import('@opentelemetry/exporter-metrics-otlp-http')).OTLPMetricExporter,
    grpc: async () => (await import('@opentelemetry/exporter-metrics-otlp-grpc')).OTLPMetricExporter,
  },
};

const MOST = 2 ** 31 - 1;

/**
 * Starts an export, and logs where it goes, when it begins to fail, and when it works again. Bad settings are logged, too.
 * @param failing the line for when it begins to fail
 * @returns undefined if the settings are bad
 */
export async function startExport<S extends Signal, T>(
  signal: S,
  failing: string,
  logger: ExportLogger,
  start: (exporter: OtlpExporter<S>) => T,
): Promise<T | undefined> {
  logWarnings(logger);
  const protocol = protocolOf(signal);
  const endpoint = signalVariable(signal, 'ENDPOINT') ?? `localhost:${protocol === 'grpc' ? 4317 : 4318}`;
  const fields = { protocol, endpoint: redactUrl(endpoint) };
  let failed = false;
  const report = (failure: Error | undefined) => {
    if (failure && !failed) logger.warn({ ...fields, error: failure.message }, failing);
    if (!failure && failed) logger.info(fields, `${signal} are exported again`);
    failed = failure !== undefined;
  };
  try {
    const started = start(reporting(new (await EXPORTERS[signal][protocol]())(), report));
    logger.info(fields, `${signal} are exported`);
    return started;
  } catch (error) {
    // Quoted values are left out: a header may be a secret.
    const text = inWords(error).replace(/"[^"]*"/g, '"..."');
    logger.warn({ ...fields, error: text }, `${signal} are not exported: bad OTEL_ settings`);
    return undefined;
  }
}

/** Logs what the SDK warns of, such as a variable that it cannot read, or spans that a collector rejected. */
function logWarnings(logger: ExportLogger): void {
  const bursts = flapBursts(logger);
  const warn = (...parts: unknown[]) => {
    const text = parts.filter((part) => typeof part === 'string').join(': ');
    bursts.say('OpenTelemetry', () => logger.warn({}, `OpenTelemetry: ${text}`));
  };
  // Its errors are those of single batches, which are reported by themselves.
  const all = { warn, error() {}, info() {}, debug() {}, verbose() {} };
  diag.setLogger(all, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
}

function protocolOf(signal: Signal): Protocol {
  const known = Object.keys(EXPORTERS[signal]) as Protocol[];
  const asked = signalVariable(signal, 'PROTOCOL') ?? 'http/protobuf';
  const protocol = known.find((each) => each === asked);
  if (!protocol) diag.warn(`the protocol ${asked} is not one of ${known.join(', ')}, using http/protobuf`);
  return protocol ?? 'http/protobuf';
}

/** Calls `report` with the result of each batch, which the SDK does not report. */
function reporting<S extends Signal>(
  exporter: OtlpExporter<S>,
  report: (failure: Error | undefined) => void,
): OtlpExporter<S> {
  const send = exporter.export.bind(exporter) as SpanExporter['export'];
  exporter.export = (batch: never, done: Parameters<SpanExporter['export']>[1]) =>
    send(batch, (result) => {
      report(result.code === 0 ? undefined : (result.error ?? new Error('export failed')));
      done(result);
    });
  return exporter;
}

/** Returns a variable of the SDK, which makes a busy loop of an interval or a queue of 0, and of one beyond what a timer takes. */
export function numberOf(variable: string, fallback: number): number {
  const value = getNumberFromEnv(variable) ?? fallback;
  if (value >= 1 && value <= MOST) return value;
  diag.warn(`${variable} is not a number from 1 to ${MOST}, using ${fallback}`);
  return fallback;
}

/** Returns who exports, and the scope of what the program itself exports. */
export function originOf({ program, version, role, process: instance }: Source): {
  readonly resource: Resource;
  readonly scope: { readonly name: string; readonly version: string };
} {
  const own = resourceFromAttributes({
    'service.name': program,
    'service.version': version,
    ...(instance !== undefined && { 'service.instance.id': instance }),
    'isthmus.role': role,
  });
  const given = detectResources({ detectors: [envDetector] });
  return { resource: defaultResource().merge(own).merge(given), scope: { name: 'isthmus', version } };
}

/** Ends an SDK, which sends what waits. Never rejects: if the last batch fails, only its exporter reports it. */
export async function endSdk(sdk: { shutdown(): Promise<void> }): Promise<void> {
  await within(
    sdk.shutdown().catch(() => {}),
    TELEMETRY.shutdownMs,
  );
}
