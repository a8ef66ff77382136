import type { FlagTable } from '@isthmus/flags';
import { FlagError, listenersOf } from '@isthmus/flags';
import { inWords } from '@isthmus/tunnel';

type Values = Readonly<Record<string, unknown>>;

const NO_ADDRESS = 'this machine has no such address';
const REASONS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'something already listens there',
  EACCES: 'permission denied',
  EADDRNOTAVAIL: NO_ADDRESS,
  // Deno's code for EADDRNOTAVAIL.
  EINVAL: NO_ADDRESS,
  ENOTFOUND: 'there is no such name',
  ENOENT: 'there is no such directory',
};

/** Returns why a program did not start, as one line that names the flag if a listener failed. */
export function startFailure(error: unknown, table: FlagTable, values: Values): string {
  if (error instanceof FlagError) return error.message;
  const failure = listenFailure(error);
  if (failure) return describe(failure, table, values);
  // A bug in the program, so its location is what matters.
  const isBug = error instanceof TypeError || error instanceof ReferenceError;
  const text = isBug ? (error.stack ?? error.message) : inWords(error);
  return `cannot start: ${isBug ? text : text.replaceAll(/\s*\n\s*/g, ' ')}`;
}

interface ListenFailure extends NodeJS.ErrnoException {
  /** An IP address, or the path of a unix socket. */
  readonly address?: string;
  /** Absent if any port would do, -1 for a unix socket. */
  readonly port?: number;
  /** Name that could not be resolved, in place of the address. */
  readonly hostname?: string;
}

/** Returns the failed `listen`, or the failed lookup of a name to listen on, that caused an error. */
function listenFailure(error: unknown): ListenFailure | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const { syscall = '' } = cause as ListenFailure;
    if (['listen', 'bind', 'getaddrinfo'].includes(syscall)) return cause;
  }
  return undefined;
}

function describe(failure: ListenFailure, table: FlagTable, values: Values): string {
  const { code, address, port = 0, hostname, message } = failure;
  const reason = REASONS[code ?? ''] ?? message;
  const flag = flagBehind(failure, reason === NO_ADDRESS, table, values);
  // Our own text about what is at a unix socket's path.
  if (code === undefined) return `${flag ? `--${flag}: ` : 'cannot start: '}${message}`;
  const host = address?.includes(':') ? `[${address}]` : (address ?? hostname);
  const place = port > 0 ? `${host}:${port}` : host;
  return `${flag ? `--${flag}: ` : ''}cannot listen on ${place}: ${reason} (${code})`;
}

/** Returns the flag to change: that of the address if the address is bad, otherwise that of the port or of the unix socket. */
function flagBehind(failure: ListenFailure, badAddress: boolean, table: FlagTable, values: Values): string | undefined {
  const { address, port = 0, hostname } = failure;
  if (port < 0) return ['uds-name', 'admin-uds-name'].find((name) => values[name] === address);
  const listeners = listenersOf(table, values);
  if (hostname !== undefined) return listeners.find(({ host }) => host === hostname)?.bind;
  const listener = listeners.find((one) => one.port === port);
  return badAddress ? listener?.bind : listener?.flag;
}
