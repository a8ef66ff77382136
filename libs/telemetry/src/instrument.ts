import { type Observation, type PlaneEvents, planeEvents, TunnelTable } from '@isthmus/tunnel';
import { logEvents } from './logging/log-events.ts';
import type { Logger } from './logging/logger.ts';
import { openTelemetry } from './tracing/opentelemetry.ts';

export interface InstrumentOptions {
  /** The program's name: `proxy-server`. */
  readonly program: string;
  /** What the process is in the plane: `gateway`, `hub`, `server`, `agent`. */
  readonly role: string;
  readonly version: string;
  readonly log: Logger;
  /** In milliseconds. A gateway's dial that failed or took longer is traced even if it was not sampled. 0 turns this off. */
  readonly traceSlow?: number;
}

/** A program's events, and the listeners that every program has. */
export interface Instruments {
  readonly events: PlaneEvents;
  readonly observation: Observation;
  readonly tunnels: TunnelTable;
  /** In milliseconds. A gateway's dial that failed or took longer has a trace even if it was not sampled. Unset if this is off. */
  readonly keptAfter: number | undefined;
  /** Sends the last spans. Bounded in time, never rejects. */
  shutdown(): Promise<void>;
}

export async function instrument(options: InstrumentOptions): Promise<Instruments> {
  const { program, role, version, log, traceSlow = 0 } = options;
  const events = planeEvents();
  logEvents(events, log);
  const tunnels = new TunnelTable(events);
  const { tracer, follow, shutdown, keptAfter } = await openTelemetry(process.env, {
    serviceName: program,
    version,
    role,
    logger: log,
    ...(traceSlow > 0 && { slowMs: traceSlow }),
  });
  follow(events);
  return { events, tunnels, shutdown, keptAfter, observation: { events, tracer } };
}
