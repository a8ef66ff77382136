import process from 'node:process';
import { type DialTracer, type Observation, type PlaneEvents, planeEvents, TunnelTable } from '@isthmus/tunnel';
import { type AuditOptions, auditTrail } from './audit/trail.ts';
import { logEvents } from './logging/log-events.ts';
import type { Logger } from './logging/logger.ts';
import type { Metrics } from './metrics/families.ts';
import { exported, type Source } from './otlp/settings.ts';
import type { SpanTracer } from './tracing/spans.ts';

export interface InstrumentOptions extends Omit<Source, 'logger'> {
  readonly log: Logger;
  /** In milliseconds. A gateway's dial that failed or took longer is logged, and traced even if it was not sampled. 0 turns this off. */
  readonly traceSlow?: number;
  /** Unset: the program has none. */
  readonly audit?: Omit<AuditOptions, 'logger'>;
}

/** A program's events, and the listeners that every program has. */
export interface Instruments extends Pick<Tracing, 'keptAfter'> {
  readonly events: PlaneEvents;
  readonly observation: Observation;
  readonly tunnels: TunnelTable;
}

/** Logs, audits and traces a program's events, until it closes. */
export async function instrument(
  { log, traceSlow = 0, audit, ...source }: InstrumentOptions,
  closing: { defer(step: () => unknown): void },
): Promise<Instruments> {
  const events = planeEvents();
  const slowMs = traceSlow > 0 ? traceSlow : Number.POSITIVE_INFINITY;
  logEvents(events, log, slowMs);
  const tunnels = new TunnelTable(events);
  const { tracer, shutdown, keptAfter } = await openTelemetry({ ...source, logger: log, events, slowMs });
  closing.defer(shutdown);
  const trail = audit && auditTrail(events, { ...audit, logger: log });
  if (trail) {
    closing.defer(trail.close);
    // Without an audit, SIGHUP ends the program, as in upstream.
    process.on('SIGHUP', trail.reopen);
  }
  return { events, tunnels, keptAfter, observation: { events, tracer } };
}

interface TracingOptions extends Source {
  /** A gateway's tell of its tunnels. */
  readonly events: PlaneEvents;
  /** In milliseconds. A gateway's dial that failed or took longer is exported even if it was not sampled. Default: none is. */
  readonly slowMs?: number;
}

export interface Tracing {
  readonly tracer: DialTracer | undefined;
  /** In milliseconds. A gateway's dial that failed or took longer is exported even if it was not sampled. Infinity: none is. */
  readonly keptAfter: number;
  /** Sends the last spans. Bounded in time, never rejects. */
  shutdown(): Promise<void>;
}

/**
 * Starts tracing as the OTEL_* variables say. If they do not enable it, there is no tracer, and no part of the SDK is loaded. Traces
 * are exported over OTLP: HTTP with protobuf or JSON, or gRPC.
 */
export async function openTelemetry(options: TracingOptions): Promise<Tracing> {
  const { logger, version } = options;
  // With OTEL_DENO, Deno itself exports all spans made with the API, and stops any other SDK in the process from exporting.
  if ('Deno' in globalThis && process.env.OTEL_DENO === 'true') {
    logger.info({}, 'traces are exported by Deno (OTEL_DENO)');
    const [{ trace }, { spanTracer }] = await Promise.all([import('@opentelemetry/api'), import('./tracing/spans.ts')]);
    return tracing(spanTracer(trace.getTracer('isthmus', version)), options.events, async () => {});
  }
  const off = { tracer: undefined, keptAfter: Number.POSITIVE_INFINITY, async shutdown() {} };
  return (exported('traces') && (await exporting(options))) || off;
}

async function exporting(options: TracingOptions): Promise<Tracing | undefined> {
  const { slowMs = Number.POSITIVE_INFINITY, events, ...source } = options;
  const [{ startExport }, { startSdk }, { keepDials, spanTracer }] = await Promise.all([
    import('./otlp/exporter.ts'),
    import('./tracing/sdk.ts'),
    import('./tracing/spans.ts'),
  ]);
  return startExport('traces', 'traces cannot be exported and are dropped', source.logger, (exporter) => {
    const { tracer, startAs, shutdown } = startSdk(exporter, source);
    const keep = Number.isFinite(slowMs) ? keepDials(startAs, slowMs) : undefined;
    return tracing(spanTracer(tracer, keep), events, shutdown, slowMs);
  });
}

function tracing(
  tracer: SpanTracer,
  events: PlaneEvents,
  shutdown: Tracing['shutdown'],
  keptAfter = Number.POSITIVE_INFINITY,
): Tracing {
  events.on('tunnel:close', (tunnel, outcome, ms) => {
    if (tunnel.role === 'gateway' || tunnel.role === 'api-server') tracer.tunnel(tunnel, outcome, ms);
  });
  events.on('api-server:failure', (dial, error, ms) => tracer.unreached(dial, error, ms));
  return { tracer, keptAfter, shutdown };
}

/**
 * Exports a program's page of metrics over OTLP if the OTEL_* variables ask for it, and otherwise loads no part of the SDK.
 * @returns a function that exports the last values and ends the export. Bounded in time, never rejects
 */
export async function exportMetrics(
  { collect }: Pick<Metrics, 'collect'>,
  source: Source,
): Promise<() => Promise<void>> {
  if (!exported('metrics')) return async () => {};
  const [{ startExport }, { startMetricSdk }] = await Promise.all([
    import('./otlp/exporter.ts'),
    import('./metrics/otlp.ts'),
  ]);
  const end = await startExport('metrics', 'metrics cannot be exported', source.logger, (exporter) =>
    startMetricSdk(exporter, source, collect),
  );
  return end ?? (async () => {});
}
