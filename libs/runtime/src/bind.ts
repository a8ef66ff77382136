import { once } from 'node:events';
import type { AddressInfo, BlockList, Server, Socket } from 'node:net';
import { remoteOf } from './addresses.ts';
import { descriptors } from './descriptors.ts';
import { keptAlive } from './keep-alive.ts';
import { proxied } from './proxied.ts';
import { SocketFile } from './socket-file.ts';

/**
 * The most connections that the kernel keeps for a listener on TCP: Node's default. A peer that finds no place tries again after a second, two,
 * four, and so on, which spreads a herd. With 4096, the 3,000 agents of a dead hub queued for so long that each gave up during its handshake,
 * and hardly any got through.
 */
const TCP_BACKLOG = 511;

/** The same on a unix socket, where connect fails at once if there is no place. net.core.somaxconn caps both. */
const UNIX_BACKLOG = 4096;

export interface BindOptions {
  /**
   * A unix socket's path, and whether a file that a dead process left there is replaced; or an address, where an empty host means all
   * addresses and port 0 any free port.
   */
  readonly at:
    | { readonly path: string; readonly deleteExisting: boolean }
    | { readonly host: string; readonly port: number };
  /** Refuses connections over its limits before anything is done for them: a TLS server begins with a handshake. */
  readonly door: { enter(socket: Socket): boolean };
  /** Connections from these networks begin with a header of the PROXY protocol. Unset: none does. */
  readonly proxyNetworks?: BlockList | undefined;
  /** Called for each connection whose header does not come, or is none. */
  readonly refused?: (remote: string, error: Error) => void;
  /** Called with each error after the server was bound, and whenever it stops listening because no file can be opened. */
  readonly failed: (error: Error) => void;
}

export interface Bound {
  /** With the port that was given. A unix socket has none. */
  readonly address: AddressInfo;
  /** Why nobody finds this process at its unix socket, unless it was hidden; see `SocketFile`. */
  readonly lost: string | undefined;
  /** Accepts what is queued, then stops listening. Removes a unix socket's file first. Resolves when new connections are refused; open ones continue. */
  stop(): Promise<void>;
  /** Stops listening at once, after removing a unix socket's file. Resolves when the last connection has ended, which is the caller's to do. */
  close(): Promise<void>;
  /** After `stop` or `close`: resolves when the last connection has ended, including those in their TLS handshake. */
  readonly idle: Promise<void>;
}

/**
 * Binds a server, and keeps it bound while the process can open file descriptors. Rejects with the system's error, or if the path belongs to
 * another process.
 */
export async function bind(server: Server, options: BindOptions): Promise<Bound> {
  const { at, failed } = options;
  const file = 'path' in at ? new SocketFile(at.path, at.deleteExisting) : undefined;
  const attempt = (act: () => void, otherwise?: () => void) => {
    try {
      act();
    } catch (error) {
      otherwise?.();
      failed(error as Error);
    }
  };
  guardServer(server, options);
  const backlog = 'path' in at ? UNIX_BACKLOG : TCP_BACKLOG;
  server.listen({ ...placeOf(at, file), backlog });
  try {
    await once(server, 'listening');
    await file?.claim();
  } catch (error) {
    server.close();
    // The system names the path that was bound, or none: the one that was asked for says what to change.
    throw 'path' in at ? Object.assign(error as Error, { syscall: 'listen', address: at.path, port: -1 }) : error;
  }
  // It listens again.
  server.on('listening', () =>
    attempt(
      () => file?.place(),
      () => server.close(),
    ),
  );
  server.on('error', failed);
  const address = server.address() as AddressInfo;
  const again = file ? { path: file.boundPath } : { host: address.address, port: address.port };
  const unguard = descriptors.guard({
    get listening() {
      return server.listening;
    },
    close() {
      failed(new Error('too many open files: not listening until one can be opened'));
      attempt(() => file?.suspend());
      server.close();
    },
    open: () => void server.listen({ ...again, backlog }),
    failed,
  });
  let closed: Promise<void> | undefined;
  const idle = new Promise<void>((resolve) => {
    server.on('close', () => closed && resolve());
  });
  const close = () => {
    unguard();
    attempt(() => file?.remove());
    closed ??= new Promise((resolve) => void server.close(() => resolve()));
    return closed;
  };
  const stop = async () => {
    unguard();
    attempt(() => file?.remove());
    await queueTaken(server, backlog);
    void close();
  };
  return {
    address,
    stop,
    close,
    idle,
    get lost() {
      return file?.lost;
    },
  };
}

function placeOf(at: BindOptions['at'], file: SocketFile | undefined) {
  if ('path' in at) return { path: file?.boundPath ?? at.path };
  return at.host === '' ? { port: at.port } : at;
}

function guardServer(server: Server, { door, proxyNetworks: networks, refused }: BindOptions): void {
  const taken = server.listeners('connection');
  server.removeAllListeners('connection');
  const take = (socket: Socket) => {
    if (!door.enter(socket)) return;
    keptAlive(socket);
    for (const each of taken) each.call(server, socket);
  };
  const told = (socket: Socket, error: Error) => refused?.(remoteOf(socket), error);
  server.on('connection', networks ? proxied({ networks, take, refused: told }) : take);
}

/**
 * Closing a listening socket resets the connections that the kernel has accepted for it. Node takes one connection per turn of its
 * event loop (libuv 1.46), so the queue is empty after a turn without one. While new ones arrive without a gap, all that were queued at
 * first have come after as many as the queue holds: by their number, because turns of a busy process take long.
 */
async function queueTaken(server: Server, backlog: number): Promise<void> {
  let taken = 0;
  const count = () => {
    taken++;
  };
  server.on('connection', count);
  for (let before = -1; taken > before && taken < backlog; ) {
    before = taken;
    await new Promise((resolve) => setImmediate(resolve));
    await new Promise((resolve) => setImmediate(resolve));
  }
  server.off('connection', count);
}
