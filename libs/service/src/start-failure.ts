import { FlagError } from './flags/error.ts';
import type { FlagTable } from './flags/flag.ts';
import { listenersOf } from './flags/ports.ts';

type Values = Readonly<Record<string, unknown>>;

const REASONS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'something listens there already',
  EACCES: 'permission denied',
  EADDRNOTAVAIL: 'this machine has no such address',
  ENOTFOUND: 'there is no such name',
  ENOENT: 'there is no such directory',
};

/** Why a program did not start, as one line that names the flag where a listener failed. */
export function startFailure(error: unknown, table: FlagTable, values: Values): string {
  if (error instanceof FlagError) return error.message;
  const failure = listenFailure(error);
  if (failure) return describe(failure, table, values);
  // An error in the program rather than around it: the place is what one needs to know.
  const isBug = error instanceof TypeError || error instanceof ReferenceError;
  const text = isBug ? (error.stack ?? error.message) : error instanceof Error ? error.message : String(error);
  return `cannot start: ${isBug ? text : text.replaceAll(/\s*\n\s*/g, ' ')}`;
}

type SystemError = NodeJS.ErrnoException & { readonly address?: string; readonly port?: number };

/** The failed `listen`, or look-up of an address to listen on, that an error is about. */
function listenFailure(error: unknown): SystemError | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const { code, syscall } = cause as SystemError;
    if (code !== undefined && (syscall === 'listen' || syscall === 'bind' || syscall === 'getaddrinfo')) return cause;
  }
  return undefined;
}

function describe(failure: SystemError, table: FlagTable, values: Values): string {
  const { code = '', address = '', port, message } = failure;
  const reason = `${REASONS[code] ?? message} (${code})`;
  if (failure.syscall === 'getaddrinfo') {
    const { hostname } = failure as { hostname?: string };
    const listener = listenersOf(table, values).find(({ host }) => host === hostname);
    return `${listener ? `--${listener.bind}: ` : ''}cannot listen on ${hostname}: ${reason}`;
  }
  if (address !== '' && address === values['uds-name']) return `--uds-name: cannot listen on ${address}: ${reason}`;
  const listener = listenersOf(table, values).find((one) => one.port === port);
  const badAddress = code === 'EADDRNOTAVAIL';
  const flag = listener && `--${badAddress ? listener.bind : listener.flag}: `;
  const place =
    port === undefined || port < 0 ? address : `${address.includes(':') ? `[${address}]` : address}:${port}`;
  return `${flag ?? ''}cannot listen on ${place}: ${reason}`;
}
