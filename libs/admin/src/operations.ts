import type { AddressInfo } from 'node:net';
import type { ProgramLog } from '@isthmus/service';
import { type Check, serveHealth, type Unready } from '@isthmus/service';
import type { AdminBackend } from './backend.ts';
import type { ConsoleOptions } from './console/console.ts';
import { adminHandler, type TenantMetrics } from './handler.ts';
import { type AdminOptions, serveAdmin } from './server.ts';

export interface OperationsOptions {
  readonly health: { readonly host: string; readonly port: number };
  readonly admin: Pick<AdminOptions, 'host' | 'port' | 'path' | 'tls'>;
  /** Unset for a program without a console. */
  readonly console?: ConsoleOptions;
  readonly profiling: boolean;
  readonly checks: () => readonly Check[];
  readonly unready: Unready;
  readonly metrics: TenantMetrics;
  readonly backend: AdminBackend;
  readonly log: ProgramLog;
  /** Called with each refused connection and its port, `health` or `admin`. */
  readonly refused: (where: string, remote: string, error: Error) => void;
}

export interface Operations {
  readonly health: AddressInfo;
  readonly admin: AddressInfo;
  close(): Promise<void>;
}

/**
 * Starts the ports that operators use in every program: health and admin. Start it last, because /healthz reports that everything is
 * up.
 */
export async function operations(options: OperationsOptions): Promise<Operations> {
  const { metrics, backend, checks, unready, log, profiling } = options;
  const refused = (where: string) => (remote: string, error: Error) => options.refused(where, remote, error);
  const { tenants, operated } = backend;
  const http = adminHandler({ metrics, profiling, tenants, operated });
  const warn = (message: string) => log.warn({}, message);
  const ready = () => checks().every(({ ok }) => ok);
  const page = options.console && { console: options.console };
  const admin = await serveAdmin({ ...options.admin, ...page, backend, ready, http, warn, refused: refused('admin') });
  try {
    const health = await serveHealth({ ...options.health, checks, unready, metrics, refused: refused('health') });
    return {
      health: health.address,
      admin: admin.address,
      async close() {
        await Promise.all([health.close(), admin.close()]);
      },
    };
  } catch (error) {
    await admin.close();
    throw error;
  }
}
