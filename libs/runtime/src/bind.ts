import { once } from 'node:events';
import { chmodSync, lstatSync, renameSync, type Stats, unlinkSync, utimesSync } from 'node:fs';
import net, { type AddressInfo, type BlockList, type Server, type Socket } from 'node:net';
import { setImmediate as tick } from 'node:timers/promises';
import { proxied, remoteOf } from './addresses.ts';
import { RUNTIME } from './defaults.ts';
import { keptAlive } from './sockets.ts';

/** Owner and group may connect. Upstream's socket has 0770. */
const SOCKET_MODE = 0o660;

/** What files are made with: SOCKET_MODE. */
const SOCKET_UMASK = 0o117;

/** The mode of one whose process serves until its end, and leaves it to the next one that asks. No other program is known to set it. */
const LEAVING_MODE = 0o760;

/**
 * The file of a unix socket that a process listens on. It is bound under a name of its own, and appears under the wanted name once its
 * mode is right. It replaces a file that a dead process left, at once that of a process that leaves, and never that of another living one.
 *
 * When a socket closes, libuv deletes the name that it has bound, whoever has it by then: a name of its own, which was renamed, is not there. `ss`
 * and systemd-tmpfiles know living sockets by the name that was bound. So a second socket binds the wanted name first: see `#mark`.
 */
export class SocketFile {
  readonly #path: string;
  readonly #deleteExisting: boolean;
  #server: Server | undefined;
  #boundPath = '';
  #own: Stats | undefined;
  /** Has bound the wanted name. */
  #marker: Server | undefined;
  #looks: NodeJS.Timeout | undefined;
  #mode = SOCKET_MODE;

  constructor(path: string, deleteExisting: boolean) {
    this.#path = path;
    this.#deleteExisting = deleteExisting;
  }

  /**
   * Has the server listen, under a name of its own in the same directory, 5 bytes long. A socket's path has at most 107 bytes, and the
   * wanted name may use them all. faultOfSocketPath in libs/flags rejects shorter names in a directory with such a long path.
   */
  listen(server: Server): void {
    this.#server = server;
    const name = Math.random().toString(36).slice(2, 6).padEnd(4, '0');
    this.#boundPath = `${this.#directory}.${name}`;
    server.listen({ path: this.#boundPath, backlog: RUNTIME.unixBacklog });
  }

  /** Resolves when the server listens, under another name if the first is taken: by a process that has just started, or was killed as it did. */
  async bind(server: Server): Promise<void> {
    for (let tries = 1; ; tries++) {
      this.listen(server);
      try {
        await once(server, 'listening');
        return;
      } catch (error) {
        if (!isCode(error, 'EADDRINUSE') || tries === RUNTIME.socketTries) throw error;
      }
    }
  }

  /**
   * Call once after it was bound. Shows it to callers. Of several processes that do this at once, one succeeds. Throws if something is
   * in the way that may not be replaced.
   */
  async claim(): Promise<void> {
    chmodSync(this.#boundPath, this.#mode);
    for (let tries = 0; tries < RUNTIME.socketTries; tries++) {
      const there = statOf(this.#path);
      const leaves = there !== undefined && (await this.#leaves(there));
      // No await from here on, so that what was seen still holds, or the change is noticed.
      const now = statOf(this.#path);
      if (leaves && now && isSame(now, there)) return this.#show();
      if (there && (leaves || !this.#clear(there))) continue;
      if (this.#mark()) return this.#show();
    }
    throw new Error(`${this.#path}: other processes keep taking this path`);
  }

  /** Call each time it was bound again. Shows it, unless another process has taken over meanwhile. Throws if the system refuses it. */
  place(): void {
    chmodSync(this.#boundPath, this.#mode);
    const own = lstatSync(this.#boundPath);
    if (this.#stands() || (this.#own && this.#mark())) this.#show();
    this.#own = own;
  }

  /** From now on, the next process that claims the path takes it over, while callers find one of both at any moment. */
  leave(): void {
    this.#mode = LEAVING_MODE;
    if (this.#stands()) chmodSync(this.#path, this.#mode);
  }

  /** Call before the socket is closed. From then on, nobody can find it. */
  remove(): void {
    const stands = this.#stands();
    clearInterval(this.#looks);
    // This deletes the file. If the path is another process' by now, it must not: the marker then stays for as long as this process.
    if (stands || this.#missing) this.#marker?.close();
    if (stands && this.#stands()) unlinkSync(this.#path);
    this.#own = undefined;
  }

  /** Looks now and then whether the file is still there, and keeps it from looking old. @param missing called whenever it is not */
  watch(missing: () => void): void {
    const look = async () => {
      const there = statOf(this.#path);
      if (!there) {
        if (statOf(this.#directory)) missing();
      } else if (this.#stands()) {
        if (Date.now() - there.mtimeMs > RUNTIME.socketAgedMs) this.#touch();
      } else if (await this.#isLeft(there)) missing();
    };
    this.#looks = setInterval(() => void look(), RUNTIME.socketLookMs).unref();
  }

  /** Whether who took the path is dead. Its file is then removed. */
  async #isLeft(there: Stats): Promise<boolean> {
    if (!this.#deleteExisting || !there.isSocket() || (await ownerOf(this.#path))) return false;
    try {
      return this.#own !== undefined && !this.#stands() && this.#clear(there);
    } catch {
      // The directory is not this user's any more: see `lost`.
      return false;
    }
  }

  /** Why callers cannot find this process at its path, unless it removed the file itself. */
  get lost(): string | undefined {
    if (this.#own === undefined || this.#stands()) return undefined;
    if (this.#missing)
      return `${this.#path} was deleted, so callers do not reach this server until it has made it again`;
    return `${this.#path} belongs to another process now, so callers do not reach this server: give it a path of its own, and restart it`;
  }

  /** With the slash at its end. */
  get #directory(): string {
    return this.#path.slice(0, this.#path.lastIndexOf('/') + 1);
  }

  get #missing(): boolean {
    return statOf(this.#path) === undefined;
  }

  /** Returns whether what is at the path belongs to a process that leaves it. Throws if it must not be removed. */
  async #leaves(there: Stats): Promise<boolean> {
    const path = this.#path;
    if (!this.#deleteExisting) throw new Error(`${path} exists already (--delete-existing-uds-file would delete it)`);
    if (!there.isSocket()) throw new Error(`${path} exists and is not a unix socket`);
    const whose = await ownerOf(path);
    if (!whose) return false;
    if ((there.mode & 0o777) === LEAVING_MODE) return true;
    throw new Error(`unix socket ${path}: ${whose}. End that process, or give this one another path`);
  }

  /** Removes what a dead process left. Returns whether the path is free. */
  #clear(dead: Stats): boolean {
    const aside = `${this.#boundPath}~`;
    try {
      renameSync(this.#path, aside);
    } catch (error) {
      return isCode(error, 'ENOENT');
    }
    // If another process has put a file there since, put it back at once, unless a third process was faster.
    const isDead = isSame(lstatSync(aside), dead);
    if (!isDead && this.#missing) renameSync(aside, this.#path);
    else unlinkSync(aside);
    return isDead;
  }

  /**
   * Has a second socket bind the wanted name. Call `#show` at once: until then, that socket takes callers. Returns false if something is
   * there. A name that is there already can only be replaced, so who takes over from a living process has no marker.
   */
  #mark(): boolean {
    if (!this.#missing) return false;
    this.#marker?.close();
    const marker = net.createServer({ allowHalfOpen: true }, (socket) => this.#server?.emit('connection', socket));
    marker.on('error', () => {}).unref();
    const before = process.umask(SOCKET_UMASK);
    try {
      marker.listen({ path: this.#path });
    } finally {
      process.umask(before);
    }
    if (marker.listening) this.#marker = marker;
    return marker.listening;
  }

  /** Puts it at its path, in place of what is there. */
  #show(): void {
    this.#own = lstatSync(this.#boundPath);
    renameSync(this.#boundPath, this.#path);
  }

  #touch(): void {
    try {
      const now = new Date();
      if (this.#stands()) utimesSync(this.#path, now, now);
    } catch {
      // Somebody has just deleted it: see `lost`.
    }
  }

  /** Whether the file still belongs to this process. No other file gets its inode number while the socket is open. */
  #stands(): boolean {
    const there = statOf(this.#path);
    return there !== undefined && this.#own !== undefined && isSame(there, this.#own);
  }
}

function statOf(path: string): Stats | undefined {
  return lstatSync(path, { throwIfNoEntry: false });
}

function isSame(a: Stats, b: Stats): boolean {
  return a.ino === b.ino && a.dev === b.dev;
}

function isCode(error: unknown, code: string): boolean {
  return (error as NodeJS.ErrnoException).code === code;
}

/** Says who owns a socket. Returns undefined if its process is dead. */
async function ownerOf(path: string): Promise<string | undefined> {
  const refusal = await connectionTo(path);
  if (refusal === undefined) return 'another process listens there';
  if (refusal !== 'ECONNREFUSED' && refusal !== 'ENOENT') return `it is unclear whose it is (${refusal})`;
  return undefined;
}

/** Checks whether a process listens at a socket. Returns the system's error, or undefined if one does. */
function connectionTo(path: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = net.connect(path);
    const settle = (refusal?: string) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(refusal);
    };
    const timer = setTimeout(settle, RUNTIME.socketAnswerMs);
    socket.on('connect', () => settle());
    // The queue of a listening process may be full.
    socket.on('error', ({ code }: NodeJS.ErrnoException) => settle(code === 'EAGAIN' ? undefined : code));
  });
}

interface BindOptions {
  /**
   * A unix socket's path, and whether a file that a dead process left there is replaced; or an address, where an empty host means all
   * addresses and port 0 any free port, and whether other processes of this user may listen there too.
   */
  readonly at:
    | { readonly path: string; readonly deleteExisting: boolean }
    | { readonly host: string; readonly port: number; readonly reusePort?: boolean };
  /** Refuses connections to an address over its limits, and lets others wait, before anything is done for them: a TLS server begins with a handshake. */
  readonly limits: { enter(socket: Socket): boolean; whenSlotIsFree?(socket: Socket, begin: () => void): void };
  /** Connections from these networks begin with a header of the PROXY protocol. Unset: none does. */
  readonly proxyNetworks?: BlockList | undefined;
  /** Called for each connection whose header does not come, or is none. */
  readonly refused?: (remote: string, error: Error) => void;
  /** Called with each error after the server was bound. */
  readonly failed: (error: Error) => void;
}

interface Bound {
  /** With the port that was given. A unix socket has none. */
  readonly address: AddressInfo;
  /** Why nobody finds this process at its unix socket, unless it was hidden; see `SocketFile`. */
  readonly lost: string | undefined;
  /** Goes on listening, and lets the next process take over its unix socket. */
  leave(): void;
  /** Accepts what is queued, then stops listening. Removes a unix socket's file first. Resolves when new connections are refused; open ones continue. */
  stop(): Promise<void>;
  /**
   * Stops listening at once, after removing a unix socket's file, and ends connections whose PROXY header has not come. Resolves when the last
   * connection has ended: to end the others is the caller's to do.
   */
  close(): Promise<void>;
  /** After `stop` or `close`: resolves when the last connection has ended, including those in their TLS handshake. */
  readonly idle: Promise<void>;
}

/**
 * Binds a server. Rejects with the system's error, or if the path belongs to another process. While the process can open no file, libuv closes
 * each new connection at once, by a descriptor that it keeps for this.
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
  // A unix socket's permissions have decided who may connect.
  const headerless = file ? [] : guardServer(server, options);
  const backlog = file ? RUNTIME.unixBacklog : RUNTIME.tcpBacklog;
  try {
    if (file) await file.bind(server);
    else await once(server.listen({ ...at, backlog }), 'listening');
    await file?.claim();
  } catch (error) {
    server.close();
    // The system names the path that was bound, or none: the one that was asked for says what to change.
    throw 'path' in at ? Object.assign(error as Error, { syscall: 'listen', address: at.path, port: -1 }) : error;
  }
  server.on('error', failed);
  const address = server.address() as AddressInfo;
  let closed: Promise<void> | undefined;
  let stopped = false;
  if (file) {
    // It listens again.
    server.on('listening', () =>
      attempt(
        () => file.place(),
        () => server.close(),
      ),
    );
    // A socket without a name can get none: the server listens on a new one.
    file.watch(() => {
      void queueTaken(server, backlog).then(() => {
        if (stopped) return;
        if (server.listening) server.close();
        file.listen(server);
      });
    });
  }
  const idle = new Promise<void>((resolve) => {
    server.on('close', () => closed && resolve());
  });
  const closeServer = () => {
    stopped = true;
    attempt(() => file?.remove());
    closed ??= new Promise((resolve) => void server.close(() => resolve()));
    return closed;
  };
  const stop = async () => {
    stopped = true;
    attempt(() => file?.remove());
    await queueTaken(server, backlog);
    void closeServer();
  };
  return {
    address,
    stop,
    close() {
      for (const socket of headerless) socket.destroy();
      return closeServer();
    },
    idle,
    leave: () => attempt(() => file?.leave()),
    get lost() {
      return file?.lost;
    },
  };
}

/** @returns the connections whose PROXY header has not come yet */
function guardServer(server: Server, { limits, proxyNetworks: networks, refused }: BindOptions): Iterable<Socket> {
  const waiting = new Set<Socket>();
  const taken = server.listeners('connection');
  server.removeAllListeners('connection');
  const take = (socket: Socket) => {
    if (!limits.enter(socket)) return;
    keptAlive(socket);
    const begin = () => {
      for (const each of taken) each.call(server, socket);
      // A header of the PROXY protocol has left it paused. Below a TLS socket nothing reads it, and what was put back is read first.
      if (networks && socket.listenerCount('data') > 0) socket.resume();
    };
    if (limits.whenSlotIsFree) limits.whenSlotIsFree(socket, begin);
    else begin();
  };
  const told = (socket: Socket, error: Error) => refused?.(remoteOf(socket), error);
  server.on('connection', networks ? proxied({ networks, waiting, take, refused: told }) : take);
  return waiting;
}

/**
 * Closing a listening socket resets the connections that the kernel has accepted for it. Node takes one connection per tick of its
 * event loop (libuv 1.46), so the queue is empty after a tick without one. One that comes while the tick's other events are handled is
 * still reset: the last tick is a short one, if one comes in time. While new ones arrive without a gap, all that were queued at first
 * have come after as many as the queue holds.
 */
async function queueTaken(server: Server, backlog: number): Promise<void> {
  let taken = 0;
  const count = () => {
    taken++;
  };
  server.on('connection', count);
  // The first may come before the loop looks for events.
  await tick();
  const late = performance.now() + RUNTIME.queueMs;
  for (let last = false; !last && taken < backlog; ) {
    const [before, began] = [taken, performance.now()];
    await tick();
    last = taken === before && (performance.now() - began < RUNTIME.shortTickMs || began > late);
  }
  server.off('connection', count);
}
