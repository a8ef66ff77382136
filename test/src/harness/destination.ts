import { createHash, type Hash, randomBytes } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { within } from '@isthmus/runtime/testing';
import { freePort } from './places.ts';
import type { Scope } from './scope.ts';

export interface ListenOptions {
  /** Default 127.0.0.1. */
  readonly host?: string;
}

/** A TCP server in this process, and how many sockets it has. */
export class Destination implements AsyncDisposable {
  readonly host: string;
  port = 0;
  /** Sockets accepted so far. */
  accepted = 0;
  /**
   * Of each socket that carried bytes and ended by a reset or another error, that error. A hedged dial connects twice, and resets the one
   * that it does not use.
   */
  readonly failures: string[] = [];
  readonly sockets = new Set<Socket>();
  readonly #server: Server;

  constructor(host: string, serve: (socket: Socket) => void) {
    this.host = host;
    this.#server = createServer({ allowHalfOpen: true }, (socket) => {
      this.accepted++;
      this.sockets.add(socket);
      socket.once('close', () => this.sockets.delete(socket));
      socket.on('error', ({ message }) => {
        if (socket.bytesRead + socket.bytesWritten > 0) this.failures.push(message);
      });
      serve(socket);
    });
  }

  async listen(): Promise<this> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject).listen(0, this.host, resolve);
    });
    this.port = (this.#server.address() as { port: number }).port;
    return this;
  }

  /** Sockets that are open now. */
  get open(): number {
    return this.sockets.size;
  }

  get authority(): string {
    return authority(this.host, this.port);
  }

  /** Stops listening, and resets what is open. */
  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.sockets) socket.destroy();
    await within(closed, { what: `the end of the destination ${this.authority}` });
  }
}

async function listen(scope: Scope, options: ListenOptions, serve: (socket: Socket) => void): Promise<Destination> {
  const destination = new Destination(options.host ?? '127.0.0.1', serve);
  await destination.listen();
  return scope.use(destination);
}

/** `host:port`, IPv6 in brackets. */
export function authority(host: string, port: number): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Sends back what it gets, and ends when the caller ends. */
export function echo(scope: Scope, options: ListenOptions = {}): Promise<Destination> {
  return listen(scope, options, (socket) => socket.pipe(socket));
}

/** Speaks first: sends a greeting, then echoes. */
export function greeter(scope: Scope, greeting: string, options: ListenOptions = {}): Promise<Destination> {
  return listen(scope, options, (socket) => {
    socket.write(greeting);
    socket.pipe(socket);
  });
}

export interface SourceOptions extends ListenOptions {
  /** Wait for the caller's first byte. Default: send at once. */
  readonly asked?: boolean;
  /** Wait for `release` after each so many bytes, a multiple of 1 MiB. Default: wait for nothing. */
  readonly portion?: number;
}

/** Sends `bytes` random bytes to every caller, then ends. `sha256` is the hash of them all, in hexadecimal. `release` lets a portion go. */
export async function source(scope: Scope, bytes: number, options: SourceOptions = {}) {
  const chunk = randomBytes(Math.min(bytes, 1 << 20));
  const hash = createHash('sha256');
  for (const part of parts(chunk, bytes)) hash.update(part);
  const released = new EventEmitter();
  let most = options.portion ?? bytes;
  const release = () => {
    most += options.portion ?? bytes;
    released.emit('more');
  };
  const destination = await listen(scope, options, (socket) => {
    const rest = parts(chunk, bytes);
    let sent = 0;
    const write = () => {
      for (;;) {
        if (sent >= most && sent < bytes) return void released.once('more', write);
        const part = rest.next();
        if (part.done) return void socket.end();
        sent += part.value.length;
        if (!socket.write(part.value)) return void socket.once('drain', write);
      }
    };
    if (options.asked) socket.once('data', write);
    else write();
    socket.resume();
  });
  return Object.assign(destination, { sha256: hash.digest('hex'), release });
}

function* parts(chunk: Buffer, bytes: number): Generator<Buffer, undefined> {
  for (let left = bytes; left > 0; left -= chunk.length) yield chunk.subarray(0, left);
  return undefined;
}

/** Reads to the end, then answers with `bytes sha256` as text and ends: the answer comes only after a half-close. */
export function sink(scope: Scope, options: ListenOptions = {}): Promise<Destination> {
  return listen(scope, options, (socket) => {
    const digest = new Digest();
    socket.on('data', (chunk) => digest.update(chunk));
    socket.once('end', () => socket.end(digest.toString()));
  });
}

/** Counts and hashes. `toString()` returns what `sink` answers. */
export class Digest {
  bytes = 0;
  readonly #hash: Hash = createHash('sha256');

  update(chunk: Uint8Array): void {
    this.bytes += chunk.length;
    this.#hash.update(chunk);
  }

  get sha256(): string {
    return this.#hash.copy().digest('hex');
  }

  toString(): string {
    return `${this.bytes} ${this.sha256}`;
  }
}

/** Accepts, and does nothing until `release()`: it neither reads nor writes, so its caller's bytes pile up. */
export async function stalled(scope: Scope, options: ListenOptions = {}) {
  const destination = await listen(scope, options, (socket) => socket.pause());
  const release = () => {
    for (const socket of destination.sockets) socket.resume().once('end', () => socket.end());
  };
  return Object.assign(destination, { release });
}

/** Resets the connection as soon as the first byte arrives. */
export function resetter(scope: Scope, options: ListenOptions = {}): Promise<Destination> {
  return listen(scope, options, (socket) => socket.once('data', () => socket.resetAndDestroy()));
}

/** Answers any HTTP/1.1 request with 200 and `body`, and keeps the connection. */
export function web(scope: Scope, body = 'hello\n', options: ListenOptions = {}): Promise<Destination> {
  const answer = `HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
  return listen(scope, options, (socket) => {
    let head = '';
    socket.setEncoding('latin1').on('data', (chunk: unknown) => {
      head += String(chunk);
      for (let end = head.indexOf('\r\n\r\n'); end >= 0; end = head.indexOf('\r\n\r\n')) {
        head = head.slice(end + 4);
        socket.write(answer);
      }
    });
    socket.once('end', () => socket.end());
  });
}

/** `host:port` of a port where nothing listens. */
export async function refused(): Promise<string> {
  return authority('127.0.0.1', await freePort());
}
