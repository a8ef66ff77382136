import { type Closing, type ProgramLog, serveHealth, type Unready } from '@isthmus/service';
import { type AdminOptions, serveAdmin } from './server.ts';

export interface OperationsOptions extends Pick<AdminOptions, 'backend' | 'console' | 'metrics' | 'profiling'> {
  readonly health: { readonly host: string; readonly port: number; readonly reusePort?: boolean };
  readonly admin: Pick<AdminOptions, 'host' | 'port' | 'path' | 'tls'>;
  readonly unready: Unready;
  readonly log: ProgramLog;
  /** Called with each refused connection and its port, `health` or `admin`. */
  readonly refused: (where: string, remote: string, error: Error) => void;
  /** Closes the ports. */
  readonly closing: Pick<Closing, 'defer'>;
}

/**
 * Starts the ports that operators use in every program: health and admin. Start it last, because /healthz reports that everything is
 * up.
 */
export async function operations(options: OperationsOptions): Promise<void> {
  const { backend, console, metrics, profiling, unready, log, closing } = options;
  const refused = (where: string) => (remote: string, error: Error) => options.refused(where, remote, error);
  const warn = (message: string) => log.warn({}, message);
  const shown = { backend, console, metrics, profiling };
  const admin = await serveAdmin({ ...options.admin, ...shown, warn, refused: refused('admin') });
  closing.defer(admin.close);
  const checks = () => backend.checks();
  const health = await serveHealth({ ...options.health, checks, unready, metrics, refused: refused('health') });
  closing.defer(health.close);
}
