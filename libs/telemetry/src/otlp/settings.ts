import process from 'node:process';

export type Signal = 'traces' | 'metrics';

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
}

/**
 * Whether the OTEL_* variables ask for the export of a signal. OpenTelemetry's SDK reads all others once it is loaded. An endpoint alone
 * asks for traces, but not for metrics: a collector for spans need not accept them.
 */
export function exported(signal: Signal): boolean {
  if (variable('OTEL_SDK_DISABLED')?.toLowerCase() === 'true') return false;
  const exporters = variable(`OTEL_${signal.toUpperCase()}_EXPORTER`)?.split(',');
  if (exporters) return exporters.some((name) => name.trim() === 'otlp');
  return signal === 'traces' && signalVariable('traces', 'ENDPOINT') !== undefined;
}

/** Returns the signal's own variable, or the one for all signals. */
export function signalVariable(signal: Signal, what: string): string | undefined {
  return variable(`OTEL_EXPORTER_OTLP_${signal.toUpperCase()}_${what}`) ?? variable(`OTEL_EXPORTER_OTLP_${what}`);
}

/** An empty variable counts as unset. */
function variable(name: string): string | undefined {
  return process.env[name]?.trim() || undefined;
}
