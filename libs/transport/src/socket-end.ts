import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { getOrPut, LruMap, onRead, writeCoalesced } from '@isthmus/runtime';
import type { DestinationEnd, EndUser } from '@isthmus/tunnel';
import { ConnectionReads, Readers, readBudget, WIRE } from '@isthmus/wire';
import { TRANSPORT } from './defaults.ts';
import { belowOf } from './tls/admit.ts';

const tenants = new LruMap<string, Readers>(TRANSPORT.controlSenders);

/** All connections and tunnels of a tenant, which this process reads in turns with those of others. */
export function readersOf(tenant: string): Readers {
  return getOrPut(tenants, tenant, () => new Readers());
}

/** Whether a reset right behind bytes is read as an end: libuv before 1.52 does not read again after it (its pull request 4997). */
const HIDES_RESETS = /^1\.([0-4]?\d|5[01])\./.test(process.versions.uv ?? '');

/** Who hears what comes at a socket. */
export type SocketUser = Omit<EndUser, 'onDrain'>;

/** Hears of a socket's end and close, beside its user. */
export interface SocketWatch {
  ended(): void;
  closed(): void;
}

/** Drops what comes. */
const NOBODY: SocketUser = { onData() {}, onEnd() {}, onClose() {} };

/**
 * A caller's or a destination's socket, and the end of a tunnel at it. It listens once to each of the socket's events and tells whoever uses the
 * socket just now, from its first bytes to the tunnel: a listener costs Node six calls, and as many to take it away.
 *
 * A cut resets the connection, so that no peer takes half an answer for a whole one. Over TLS, that is the connection below, without a
 * close_notify. A unix socket has no reset: its peer sees an end, and ECONNRESET only if it had sent bytes that nobody has read.
 */
export class SocketEnd implements DestinationEnd {
  readonly halfOpen = true;
  readonly detached = false;
  readonly stream: Socket;
  watch: SocketWatch | undefined;
  /** Unset: what comes is kept. */
  #user: SocketUser | undefined;
  #kept: Buffer[] = [];
  #keptBytes = 0;
  #stopReading: (() => void) | undefined;
  /** Whether a reset may come as an end. */
  #mayHide = false;
  #ended = false;
  #closed = false;
  /** What it has read, once that is much. */
  #reads: ConnectionReads | undefined;
  #uncounted = 0;
  /** Whether it waits for its turn. */
  #rests = false;
  #paused = false;
  #failure: Error | undefined;
  /** In whose turns it is read. Until it has a tunnel, in turns of its own. */
  #tenant: string | undefined;
  readonly #leaving: ((socket: Socket) => void)[];

  /** @param left called once the socket has closed, if somebody has listened to it */
  constructor(socket: Socket, left?: (socket: Socket) => void) {
    this.stream = socket;
    this.#leaving = left ? [left] : [];
  }

  /** The socket's bytes and end are for this user from now on. */
  hear(user: SocketUser): void {
    this.#listen();
    this.#user = user;
  }

  /** What comes is read in its turns and dropped from now on. */
  forget(): void {
    this.hear(NOBODY);
    this.watch = undefined;
    this.#kept = [];
    this.resume();
  }

  /** Keeps what comes, for `take` or `use`. @param first what has come already */
  keep(first: Buffer): void {
    this.#user = undefined;
    this.#listen();
    if (first.length > 0) this.#keep(first);
  }

  /** Returns what was kept, and goes on reading. */
  take(): Buffer {
    const kept = this.#kept.length === 1 ? (this.#kept[0] as Buffer) : Buffer.concat(this.#kept);
    this.#kept = [];
    this.#keptBytes = 0;
    if (kept.length > 0 && this.stream.isPaused()) this.resume();
    return kept;
  }

  /** Leaves the socket's bytes and end to others, who listen themselves. */
  release(): Socket {
    this.#stopReading?.();
    // Whether it is read is for others to say.
    this.#rests = true;
    return this.stream.off('end', this.#end);
  }

  use(user: EndUser, tenant: string): void {
    this.#tenant = tenant;
    const kept = this.#keptBytes > 0;
    this.#listen();
    this.stream.on('drain', () => user.onDrain());
    if (kept || this.#ended || this.#closed) queueMicrotask(() => this.#tell(user));
    else this.#user = user;
  }

  /** Tells what came before. */
  #tell(user: SocketUser): void {
    this.#user = user;
    const kept = this.take();
    if (kept.length > 0) user.onData(kept);
    if (this.#ended && !this.stream.destroyed) user.onEnd();
    if (this.#closed) user.onClose(this.#failure);
  }

  whenLeft(left: () => void): void {
    this.#listen();
    if (this.#closed) left();
    else this.#leaving.push(left);
  }

  write(bytes: Uint8Array): boolean {
    return writeCoalesced(this.stream, bytes);
  }

  /** A plain socket that has sent everything, and whose peer has ended, is closed at once: the kernel sends the same FIN. TLS says its end itself. */
  finish(last: boolean): void {
    const socket = this.stream;
    if (last && socket.writableLength === 0 && !(socket instanceof TLSSocket)) socket.destroy();
    else socket.end();
  }

  pause(): void {
    this.#paused = true;
    this.stream.pause();
  }

  resume(): void {
    this.#paused = false;
    if (!this.#rests) this.stream.resume();
  }

  get writableLength(): number {
    return this.stream.writableLength;
  }

  whenFinished(then: () => void): void {
    if (this.stream.writableFinished) then();
    else this.stream.once('finish', then);
  }

  whenDelivered(then: () => void, silentMs: number): void {
    const { stream } = this;
    const reaches = (ms: number) => {
      if (ms > 0 && tcpOf(stream)) setTimeout(then, ms).unref();
      else then();
    };
    // What a slow reader has only now made room for is still on its way, however long ago it was read.
    if (stream.writableLength === 0 || stream.destroyed) reaches(TRANSPORT.deliveryMs - silentMs);
    else stream.write('', () => reaches(TRANSPORT.deliveryMs));
  }

  close(): void {
    this.stream.destroy();
  }

  abort(): void {
    resetSocket(this.stream);
  }

  #listen(): void {
    if (this.#stopReading) return;
    const socket = this.stream;
    this.#failure = socket.errored ?? undefined;
    // A unix socket has no reset, and TLS ends by a message of its own.
    this.#mayHide = HIDES_RESETS && !(socket instanceof TLSSocket) && tcpOf(socket) !== undefined;
    socket.on('end', this.#end).on('error', this.#fail).on('close', this.#close);
    const kept = () => {
      this.#uncounted += WIRE.frameReadBytes;
    };
    this.#stopReading = onRead(socket, this.#data, kept);
    if (socket.closed) queueMicrotask(this.#close);
  }

  #keep(bytes: Buffer): void {
    this.#kept.push(bytes);
    this.#keptBytes += bytes.length;
    if (this.#keptBytes >= TRANSPORT.earlyBytes) this.pause();
  }

  readonly #data = (bytes: Buffer) => {
    if (this.#user) this.#user.onData(bytes);
    else this.#keep(bytes);
    // Each record of TLS comes by itself, and may hold a byte. What is little is not counted, because a dial is made of calls.
    this.#uncounted += Math.max(bytes.length, WIRE.frameReadBytes);
    if (this.#uncounted > WIRE.readAtLeastBytes / 2) this.#count();
  };

  #count(): void {
    this.#reads ??= new ConnectionReads();
    if (this.#tenant !== undefined) this.#reads.readers = readersOf(this.#tenant);
    const much = readBudget.count(this.#reads, this.#uncounted);
    this.#uncounted = 0;
    if (!much || this.#rests) return;
    this.#rests = true;
    this.stream.pause();
    readBudget.rest(this.#reads, () => {
      this.#rests = false;
      readBudget.expect();
      if (!this.#paused) this.#readOn();
    });
  }

  /** What came in pieces meanwhile comes as one. */
  #readOn(): void {
    const state = Reflect.get(this.stream, '_readableState');
    const { highWaterMark, length: waits } = state;
    if (waits > 0) this.stream.read(waits);
    // Such a read raises it for good, and a paused socket would read on until so much waits in it.
    state.highWaterMark = highWaterMark;
    if (!this.#paused && !this.#rests) this.stream.resume();
  }

  readonly #end = () => {
    if (this.#mayHide && wasReset(this.stream)) {
      this.stream.destroy(Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' }));
      return;
    }
    this.#ended = true;
    this.watch?.ended();
    this.#user?.onEnd();
  };

  readonly #fail = (error: Error) => {
    this.#failure ??= error;
  };

  readonly #close = () => {
    if (this.#closed) return;
    this.#closed = true;
    this.watch?.closed();
    this.#user?.onClose(this.#failure);
    for (const left of this.#leaving) left(this.stream);
  };
}

/** Whether the kernel has no peer for a connection of which only the other side has ended. It has one after a FIN, unless what was written since drew a reset. */
function wasReset(socket: Socket): boolean {
  const handle: { getpeername?: (into: object) => number } | null = Reflect.get(socket, '_handle');
  return !socket.writableEnded && (handle?.getpeername?.({}) ?? 0) !== 0;
}

/** Cuts a connection: see `SocketEnd`. */
export function resetSocket(socket: Socket): void {
  // Node cannot reset a socket whose end is on its way. All its bytes have left by then.
  const ending = socket.writableEnded && socket.writableLength === 0 && !socket.writableFinished;
  if (!ending) tcpOf(socket)?.resetAndDestroy();
  socket.destroy();
}

/** Returns the TCP connection; undefined for a unix socket, or after the end. */
export function tcpOf(socket: Socket): Socket | undefined {
  const connection = socket instanceof TLSSocket ? belowOf(socket) : socket;
  return connection?.remotePort === undefined ? undefined : connection;
}
