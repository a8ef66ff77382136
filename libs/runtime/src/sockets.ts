import type { ClientRequest, IncomingMessage } from 'node:http';
import net, { isIP, Socket } from 'node:net';
import type { Duplex, Readable } from 'node:stream';
import { RUNTIME } from './defaults.ts';
import { names } from './resolve.ts';
import { bufferSizes } from './resources.ts';

/** Node 26 passes all of these on. Older ones take only the first two, then ask ten times, a second apart: they end it after 25 s. */
type SetKeepAlive = (enable: boolean, idleMs: number, intervalMs: number, probes: number) => void;

/** Lets the kernel watch a connection's peer. For every TCP socket that the plane opens or accepts; a unix socket needs none. */
export function keptAlive<T extends Socket>(socket: T): T {
  (socket.setKeepAlive as SetKeepAlive)(
    true,
    RUNTIME.keepAliveIdleMs,
    RUNTIME.keepAliveIntervalMs,
    RUNTIME.keepAliveProbes,
  );
  return socket;
}

/** Reads just enough of a flowing socket to tell whether it begins with a prefix, and calls `decided` once, with all bytes read so far. */
export function beginsWith(socket: Socket, prefix: Buffer, decided: (does: boolean, first: Buffer) => void): void {
  let seen: Buffer | undefined;
  const read = (chunk: Buffer) => {
    seen = seen ? Buffer.concat([seen, chunk]) : chunk;
    const does = begins(seen, prefix);
    if (does && seen.length < prefix.length) return;
    socket.off('data', read);
    decided(does, seen);
  };
  socket.on('data', read);
}

/** Whether one is the beginning of the other. Most differ in their first byte, and Node's own comparison takes a dozen calls to check its arguments. */
export function begins(bytes: Buffer, whole: Buffer): boolean {
  const length = Math.min(bytes.length, whole.length);
  let at = 0;
  while (at < length && bytes[at] === whole[at]) at++;
  return at === length;
}

/**
 * Gives a socket's bytes to `take` as they are read: a listener for `data`, of which Node makes 45 calls and a tick for each chunk, for an event
 * and for a look whether to read more. A chunk that nothing holds up passes these by, because Node gives what it has read to `push`. What waits
 * in the stream, because that was paused or begins with bytes that were put back, comes as `data`. Other listeners for `data` get nothing else.
 * @param kept called for each chunk that begins to wait. @returns a function that ends this
 */
export function onRead(socket: Duplex, take: (chunk: Buffer) => void, kept?: () => void): () => void {
  socket.on('data', take);
  // Deno 2.9 stops reading when a socket pauses. Its stream goes on only if it has seen what was read.
  if (!(socket instanceof Socket) || 'Deno' in globalThis) return () => void socket.off('data', take);
  // What a paused stream reads on until so much waits in it: 64 KiB of TLS are as many pieces if each record holds a byte.
  Reflect.set(Reflect.get(socket, '_readableState'), 'highWaterMark', 1);
  const { push } = Socket.prototype;
  const pass = (chunk: unknown, encoding?: BufferEncoding): boolean => {
    const waits = !(chunk instanceof Buffer) || socket.readableFlowing !== true || socket.readableLength > 0;
    if (waits) {
      kept?.();
      return push.call(socket, chunk, encoding);
    }
    take(chunk);
    return true;
  };
  socket.push = pass;
  return () => {
    socket.off('data', take);
    if (socket.push === pass) socket.push = push;
  };
}

/** Puts bytes that were read back in front of a socket, and pauses it until something reads it. */
export function putBack(socket: Socket, first: Buffer): void {
  socket.pause();
  socket.unshift(first);
}

/**
 * Calls back once when a stream closes; now, if it has closed already. Then no event follows, and behind an await nobody can know: the listener
 * that takes back a count would never run.
 */
export function onceClosed(
  stream: {
    readonly closed?: boolean | undefined;
    readonly destroyed: boolean;
    once(event: 'close', listener: () => void): unknown;
  },
  act: () => void,
): void {
  // Deno 2.9 does not say of an answer whether it has closed.
  if (stream.closed ?? stream.destroyed) act();
  else stream.once('close', act);
}

/** What all sockets that read shortly read into. */
let read: Buffer | undefined;

/**
 * Options of a socket that lets it read no more at once than a stream buffers. Otherwise it takes 64 KiB, which is too much for each of many
 * tunnels where memory is limited.
 * @param socket the one that has the options
 */
export function shortReads(socket: () => Socket): Pick<net.SocketConstructorOpts, 'onread'> {
  if (bufferSizes.stream >= RUNTIME.streamBytes) return {};
  read ??= Buffer.allocUnsafeSlow(bufferSizes.stream);
  const callback = (length: number, bytes: Uint8Array) => {
    // Its own: in one of Node's pools, a piece would keep those of other sockets.
    const piece = Buffer.allocUnsafeSlow(length);
    piece.set(bytes.subarray(0, length));
    return socket().push(piece);
  };
  return { onread: { buffer: read, callback } };
}

/** Sockets that hold back what was written in this tick of the event loop. */
let holding: Socket[] = [];

/**
 * Writes to a socket. Bulk chunks of one event loop tick leave in one write.
 *
 * TLS delivers records of 16 KiB, several at a time. A write for each is a system call and wakes the reader, which then also reads
 * them one by one: a third of an agent's time for an upload, and half of its destination's. Short chunks leave at once.
 *
 * @returns whether the socket accepts more; if not, it will emit `drain`
 */
export function writeCoalesced(socket: Socket, chunk: Uint8Array): boolean {
  if (chunk.length >= RUNTIME.bulkChunkBytes && socket.writableCorked === 0) hold(socket);
  socket.write(chunk);
  if (socket.writableLength >= bufferSizes.stream) socket.uncork();
  return !socket.writableNeedDrain || socket.writableLength < bufferSizes.stream;
}

function hold(socket: Socket): void {
  socket.cork();
  if (holding.push(socket) === 1) setImmediate(release);
}

function release(): void {
  const held = holding;
  holding = [];
  for (const socket of held) socket.uncork();
}

/** Destroys a stream as soon as its reader has what was received. Call it once nothing more is received. */
export function destroyOnceRead(stream: Readable, error?: Error): void {
  const look = () => {
    // The last piece is out of the stream before its reader has it.
    if (stream.readableLength === 0) process.nextTick(() => stream.destroy(error));
  };
  if (stream.readableLength === 0) stream.destroy(error);
  // A listener for data would start a stream that nobody reads yet.
  else if (stream.readableFlowing === null) stream.once('resume', () => stream.on('data', look));
  else stream.on('data', look);
}

/**
 * Returns the head of the answer to a request. The signal ends the request and the body, with its reason. This is done by hand, because
 * Deno 2.9 does not always obey a request's signal, and never in the body.
 */
export function answerTo(request: ClientRequest, signal: AbortSignal): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    let response: IncomingMessage | undefined;
    const abort = () => {
      const error = signal.reason as Error;
      request.destroy(error);
      response?.destroy(error);
      reject(error);
    };
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    request.on('error', reject);
    request.on('response', (answer) => {
      response = answer;
      if (signal.aborted) answer.destroy();
      else resolve(answer);
    });
  });
}

/**
 * Returns all that a stream has. Rejects if it ends early.
 * @param most bytes that it may have. After more, it is destroyed
 */
export async function wholeOf(
  stream: Readable,
  most: number,
  tooLong = () => new Error(`the answer is longer than ${most} bytes`),
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > most) throw tooLong();
      chunks.push(chunk);
    }
  } catch (error) {
    // Node says only "aborted".
    if ((error as NodeJS.ErrnoException).code !== 'ECONNRESET') throw error;
    throw new Error('the answer ended too early', { cause: error });
  }
  return Buffer.concat(chunks);
}

interface GiveUpOptions {
  /** How long the step may take, in milliseconds, and what the connection then ends with. Unset: for as long as it takes. */
  readonly timeout?: number;
  readonly late?: string;
  /** Gives up the attempt. Has no effect once the step is done. */
  readonly signal?: AbortSignal | undefined;
}

/** Waits for a step of making a connection. If it takes too long, or is given up, the connection is destroyed, which must reject the step. */
export async function unlessGivenUp<T>(
  connection: { destroy(reason: Error): unknown },
  step: () => Promise<T>,
  { timeout, late, signal }: GiveUpOptions,
): Promise<T> {
  const end = (why: string | undefined) => connection.destroy(new Error(why));
  const abandon = () => end('connection attempt abandoned');
  const timer = timeout === undefined ? undefined : setTimeout(end, Math.max(1, timeout), late);
  if (signal?.aborted) abandon();
  signal?.addEventListener('abort', abandon, { once: true });
  try {
    return await step();
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abandon);
  }
}

interface FirstOptions {
  /** Starts to connect. */
  readonly open: (address: string) => Socket;
  readonly connected: (socket: Socket) => void;
  /** With several addresses, an AggregateError with the error of each. */
  readonly failed: (error: NodeJS.ErrnoException) => void;
}

/**
 * Connects to whichever of several addresses answers first. Attempts start one after the other, and none is given up before one of them has
 * succeeded: of those that answer late, all others may be dead. Node's own `autoSelectFamily` gives each but the last 250 ms, and then
 * destroys it.
 * @returns what gives up
 */
export function connectFirst(addresses: readonly string[], { open, connected, failed }: FirstOptions): () => void {
  const errors: Error[] = [];
  const trying = new Set<Socket>();
  let started = 0;
  let lost = 0;
  let timer: NodeJS.Timeout | undefined;
  const giveUp = () => {
    clearTimeout(timer);
    for (const socket of trying) socket.on('error', () => {}).destroy();
    trying.clear();
  };
  const next = () => {
    clearTimeout(timer);
    const index = started++;
    const socket = open(addresses[index] as string);
    trying.add(socket);
    if (started < addresses.length) timer = setTimeout(next, RUNTIME.connectApartMs);
    const refused = (error: Error) => {
      if (!trying.delete(socket)) return;
      errors[index] = error;
      if (++lost === addresses.length) failed(addresses.length === 1 ? error : new AggregateError(errors));
      else if (started < addresses.length) next();
    };
    socket.once('error', refused).once('connect', () => {
      socket.off('error', refused);
      // Not before: libuv would set times of its own first, which are four system calls more.
      keptAlive(socket);
      trying.delete(socket);
      giveUp();
      trying.add(socket);
      connected(socket);
    });
  };
  next();
  return giveUp;
}

export interface ConnectLimits {
  /** How long it may take, in milliseconds. */
  readonly timeout: number;
  /** Gives up the attempt. Has no effect on an established connection. */
  readonly signal?: AbortSignal | undefined;
}

/** Connects to a name or an address. The socket ignores errors from then on. */
export function connectTo(
  { host, port }: { readonly host: string; readonly port: number },
  { timeout, signal }: ConnectLimits,
): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  let giveUp = () => {};
  const failed = (error: Error) => {
    giveUp();
    reject(error instanceof AggregateError ? error.errors[0] : error);
  };
  const connected = (socket: Socket) => resolve(socket.on('error', () => {}));
  const open = (address: string) => net.connect({ host: address, port, noDelay: true });
  const begin = (addresses: readonly string[]) => {
    giveUp = connectFirst(addresses, { open, connected, failed });
  };
  const step = () => {
    if (signal?.aborted) return promise;
    if (isIP(host) !== 0) begin([host]);
    else {
      giveUp = names.resolve(host, (error, found) => {
        if (error) failed(error);
        else begin(found.map(({ address }) => address));
      });
    }
    return promise;
  };
  const late = `no connection to ${host}:${port} within ${timeout / 1000} s`;
  return unlessGivenUp({ destroy: failed }, step, { timeout, late, signal });
}
