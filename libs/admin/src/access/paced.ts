import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { getOrPut, LruMap, onceClosed } from '@isthmus/runtime';
import { ADMIN } from '../defaults.ts';

/**
 * How fast one tenant's operators may send: a few bytes of HTTP/2 open a stream, reset it or change a table, and what each costs the library
 * does not bound. Calls are small, and answers as fast as ever.
 */
class Pace {
  /** When the next byte may be read, in milliseconds of `performance.now()`. Before now: a burst is left. */
  #due = 0;

  /** Reserves the next turn. Returns after how many milliseconds it begins. */
  turn(bytes: number, now = performance.now()): number {
    this.#due = Math.max(this.#due, now - ADMIN.tenantBurstMs) + (1000 * bytes) / ADMIN.tenantBytesPerSecond;
    return Math.max(0, this.#due - now);
  }
}

/** The paces of tenants, whose connections share one each. */
export class Paces {
  readonly #tenants = new LruMap<string, Pace>(ADMIN.pacedTenants);

  /** Reserves a tenant's next turn, for so many bytes. Returns after how many milliseconds it begins. */
  turn(tenant: string, bytes: number): number {
    return this.#of(tenant).turn(bytes);
  }

  /** A connection of a tenant's operator, of which no more is read than the tenant's turns allow. */
  paced(socket: Socket, tenant: string): Duplex {
    return new Paced(socket, this.#of(tenant));
  }

  #of(tenant: string): Pace {
    return getOrPut(this.#tenants, tenant, () => new Pace());
  }
}

class Paced extends Duplex {
  readonly #socket: Socket;
  readonly #pace: Pace;
  #timer: NodeJS.Timeout | undefined;
  #ended = false;
  /** Whether somebody waits for bytes, and none is on its turn. */
  #wanted = false;

  constructor(socket: Socket, pace: Pace) {
    super({ allowHalfOpen: true });
    this.#socket = socket;
    this.#pace = pace;
    socket.on('readable', () => this.#take());
    socket.on('end', () => {
      this.#ended = true;
      if (!this.#timer) this.push(null);
    });
    socket.on('error', (error) => this.destroy(error));
    onceClosed(socket, () => this.destroy());
  }

  override _read(): void {
    this.#wanted = true;
    this.#take();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#socket.write(chunk, done);
  }

  override _final(done: () => void): void {
    this.#socket.end(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    clearTimeout(this.#timer);
    this.#socket.destroy();
    done(error);
  }

  #take(): void {
    const { readableLength } = this.#socket;
    if (!this.#wanted) return;
    // What is left at the end is less than was asked for, and comes with null.
    const bytes: Buffer | null = this.#socket.read(Math.min(readableLength, ADMIN.tenantTurnBytes) || undefined);
    if (!bytes) return;
    this.#wanted = false;
    const wait = this.#pace.turn(bytes.length);
    if (wait === 0) {
      this.push(bytes);
      return;
    }
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.push(bytes);
      if (this.#ended) this.push(null);
    }, wait);
  }
}
