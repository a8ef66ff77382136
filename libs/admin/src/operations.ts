import type { Server as TlsServer } from 'node:tls';
import { type AgentValues, type GatewayValues, parseConsole, tlsPolicy } from '@isthmus/flags';
import type { TlsSettings } from '@isthmus/runtime';
import { type Closing, type ProgramLog, serveHealth, type Unready } from '@isthmus/service';
import type { Identity } from './calls/status.ts';
import { type AdminOptions, type AdminTls, serveAdmin } from './server.ts';

export interface OperationsOptions extends Pick<AdminOptions, 'backend' | 'console' | 'metrics' | 'profiling'> {
  readonly health: { readonly host: string; readonly port: number };
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

type AdminTlsFlags = Pick<AgentValues, 'admin-server-cert' | 'admin-server-key' | 'admin-ca-cert'>;

/** Makes the admin port's TLS server, of files. */
type CreateAdmin = (files: TlsSettings, ...rest: Parameters<AdminTls>) => TlsServer;

/** Returns the admin port's own TLS server, or undefined without its certificates. */
function adminTls(flags: AdminTlsFlags, policy: ReturnType<typeof tlsPolicy>, create: CreateAdmin) {
  const { 'admin-server-cert': cert, 'admin-server-key': key, 'admin-ca-cert': ca } = flags;
  return cert === '' ? undefined : (...rest: Parameters<AdminTls>) => create({ cert, key, ca, ...policy }, ...rest);
}

/** The unix socket, if there is one, replaces the port. */
function socketOf({ 'admin-uds-name': path }: { readonly 'admin-uds-name': string }) {
  return path === '' ? {} : { path };
}

type OperationsFlags = AdminTlsFlags &
  Parameters<typeof tlsPolicy>[0] &
  Pick<
    GatewayValues,
    | 'health-bind-address'
    | 'health-port'
    | 'admin-uds-name'
    | 'admin-bind-address'
    | 'admin-port'
    | 'enable-profiling'
    | 'console'
    | 'console-trace-url'
  >;

/** Returns the ports for operators, the same for every server-side program. */
export function operationsPorts(flags: OperationsFlags, create: CreateAdmin) {
  const tls = adminTls(flags, tlsPolicy(flags), create);
  return {
    health: { host: flags['health-bind-address'], port: flags['health-port'] },
    admin: { host: flags['admin-bind-address'], port: flags['admin-port'], ...socketOf(flags), tls },
    console: { when: parseConsole(flags), traceUrl: flags['console-trace-url'] },
    profiling: flags['enable-profiling'],
  };
}

type AgentOperationsFlags = AdminTlsFlags &
  Pick<
    AgentValues,
    | 'health-server-host'
    | 'health-server-port'
    | 'admin-uds-name'
    | 'admin-bind-address'
    | 'admin-server-port'
    | 'enable-profiling'
  >;

/** Like `operationsPorts`, with the names of an agent's flags. */
export function agentOperationsPorts(flags: AgentOperationsFlags, create: CreateAdmin) {
  return {
    health: { host: flags['health-server-host'], port: flags['health-server-port'] },
    admin: {
      host: flags['admin-bind-address'],
      port: flags['admin-server-port'],
      ...socketOf(flags),
      tls: adminTls(flags, {}, create),
    },
    profiling: flags['enable-profiling'],
  };
}

type IdentityFlags = Pick<GatewayValues, 'server-id' | 'zone' | 'plane' | 'redis-url'>;

/** Returns what a server-side program says about itself on its admin port. */
export function identityOf(flags: IdentityFlags, program: string, roles: Identity['roles']): Identity {
  const id = flags['server-id'];
  return {
    program,
    roles,
    zone: flags.zone,
    memberId: id,
    hubId: roles.includes('hub') ? id : '',
    agentId: '',
    plane: flags['redis-url'] === '' ? '' : flags.plane,
  };
}
