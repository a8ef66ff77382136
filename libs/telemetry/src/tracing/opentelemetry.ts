import { type DialTracer, inWords, noTracer, type PlaneEvents } from '@isthmus/tunnel';
import { redactUrl } from '../logging/redact.ts';
import type { Environment } from '../otlp/environment.ts';
import type { ExportLogger } from '../otlp/exporter.ts';
import { type TraceSettings, traceSettings } from './settings.ts';
import type { SpanTracer } from './spans.ts';

export interface TracingOptions {
  /** `service.name`, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES set another. */
  readonly serviceName: string;
  readonly version: string;
  /** What the process is in the plane (`gateway`, `hub`, `server`, `agent`): the resource's `isthmus.role`. */
  readonly role: string;
  /** In milliseconds. A gateway's dial that failed or took longer is exported even if it was not sampled. Unset turns this off. */
  readonly slowMs?: number;
  readonly logger?: ExportLogger;
}

export interface Tracing {
  readonly tracer: DialTracer;
  /** In milliseconds. A gateway's dial that failed or took longer is exported even if it was not sampled. Unset if this is off. */
  readonly keptAfter?: number | undefined;
  /** Records the tunnels of a gateway. */
  follow(events: PlaneEvents): void;
  /** Sends the last spans. Bounded in time, never rejects. */
  shutdown(): Promise<void>;
}

const SILENT: ExportLogger = { info() {}, warn() {} };

/**
 * Starts tracing as the OTEL_* variables of `env` say. If they do not enable it, the tracer is `noTracer`, and no part of the SDK is
 * loaded. Only traces are exported, over OTLP: HTTP with protobuf or JSON, or gRPC.
 */
export async function openTelemetry(env: Environment, options: TracingOptions): Promise<Tracing> {
  const { logger = SILENT } = options;
  // With OTEL_DENO, Deno itself exports all spans made with the API, and stops any other SDK in the process from exporting.
  if ('Deno' in globalThis && env.OTEL_DENO === 'true') {
    logger.info({}, 'traces are exported by Deno (OTEL_DENO)');
    return builtIn(options);
  }
  const settings = traceSettings(env);
  for (const warning of settings?.warnings ?? []) logger.warn({}, warning);
  if (!settings) return off();
  const fields = { protocol: settings.protocol, endpoint: redactUrl(settings.url) };
  try {
    const tracing = await exporting(settings, options, fields, logger);
    logger.info(fields, 'traces are exported');
    return tracing;
  } catch (error) {
    logger.warn({ ...fields, error: inWords(error) }, 'traces are not exported: bad OTEL_EXPORTER_OTLP settings');
    return off();
  }
}

function off(): Tracing {
  return { tracer: noTracer, follow() {}, async shutdown() {} };
}

async function builtIn({ version }: TracingOptions): Promise<Tracing> {
  const [{ trace }, { spanTracer }] = await Promise.all([import('@opentelemetry/api'), import('./spans.ts')]);
  return tracing(spanTracer(trace.getTracer('isthmus', version)), async () => {});
}

function tracing(tracer: SpanTracer, shutdown: () => Promise<void>): Tracing {
  return {
    tracer,
    follow(events) {
      events.on('tunnel:close', (tunnel, outcome) => {
        if (tunnel.role === 'gateway') tracer.tunnel(tunnel, outcome);
      });
    },
    shutdown,
  };
}

async function exporting(
  settings: TraceSettings,
  { serviceName, version, role, slowMs }: TracingOptions,
  fields: object,
  logger: ExportLogger,
): Promise<Tracing> {
  const [{ startSdk }, { spanTracer }, { keepDials }] = await Promise.all([
    import('./sdk.ts'),
    import('./spans.ts'),
    import('./kept.ts'),
  ]);
  const scope = { name: 'isthmus', version };
  const attributes = { 'service.name': serviceName, 'service.version': version, 'isthmus.role': role };
  const { tracer, startAs, shutdown } = await startSdk(settings, scope, attributes, (failure) => {
    if (failure) logger.warn({ ...fields, error: failure.message }, 'traces cannot be exported and are dropped');
    else logger.info(fields, 'traces are exported again');
  });
  if (slowMs === undefined) return tracing(spanTracer(tracer), shutdown);
  return { ...tracing(spanTracer(tracer, keepDials(startAs, slowMs)), shutdown), keptAfter: slowMs };
}
