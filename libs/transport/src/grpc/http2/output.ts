import type { Socket } from 'node:net';
import { DEFAULT_FRAME, DEFAULT_SETTINGS, MAX_WINDOW } from '@isthmus/http2';
import type { ServerStream } from './stream.ts';

/** What may wait for the socket before streams are held back, in bytes: enough to keep it busy until it asks for more. */
const AHEAD = 64 * 1024;

/** Up to so many bytes are cheaper to copy into one buffer than to write one by one. */
const MERGED = 4 * 1024;

/** What a connection sends: all of one turn in one write. Streams take turns for what the socket and the peer's window allow. */
export class Output {
  /** The longest payload that the peer takes in a frame, in bytes. */
  maxFrame = DEFAULT_FRAME;
  readonly #socket: Socket;
  readonly #flushLater = () => this.flush();
  /** Streams with data that found no room; first come, first served. */
  readonly #waiting = new Set<ServerStream>();
  /** How much data the peer still takes on the whole connection, in bytes. */
  #window = DEFAULT_SETTINGS.initialWindowSize;
  #parts: Buffer[] = [];
  #bytes = 0;
  /** The socket asked to wait. */
  #full = false;
  #ended = false;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('drain', () => {
      this.#full = false;
      this.#resume();
    });
  }

  /** How many bytes of data may be added now. */
  get room(): number {
    return this.#full || this.#bytes >= AHEAD ? 0 : this.#window;
  }

  /** What waits here and in the socket, in bytes. */
  get backlog(): number {
    return this.#bytes + this.#socket.writableLength;
  }

  /**
   * Takes a frame or a part of one in any case; who sends data looks at `room` first.
   * @param data bytes that count for the peer's window
   */
  add(part: Buffer, data = 0): void {
    if (this.#ended) return;
    this.#window -= data;
    if (this.#parts.length === 0) process.nextTick(this.#flushLater);
    this.#parts.push(part);
    this.#bytes += part.length;
  }

  /** Has the stream pump when there is room. */
  wait(stream: ServerStream): void {
    this.#waiting.add(stream);
  }

  leave(stream: ServerStream): void {
    this.#waiting.delete(stream);
  }

  /** The peer takes so many bytes more. @returns false when that is more than there can be */
  widen(bytes: number): boolean {
    this.#window += bytes;
    if (this.#window > MAX_WINDOW) return false;
    this.#resume();
    return true;
  }

  flush(): void {
    const parts = this.#parts;
    const bytes = this.#bytes;
    if (parts.length === 0) return;
    this.#parts = [];
    this.#bytes = 0;
    if (this.#socket.destroyed) return;
    this.#full = !this.#write(parts, bytes);
    if (bytes >= AHEAD) this.#resume();
  }

  /** Sends what there is, and then FIN. */
  end(): void {
    this.flush();
    this.#ended = true;
    this.#socket.end();
  }

  #resume(): void {
    while (this.#waiting.size > 0 && this.room > 0) {
      const stream = this.#waiting.values().next().value as ServerStream;
      this.#waiting.delete(stream);
      stream.pump();
    }
  }

  #write(parts: readonly Buffer[], bytes: number): boolean {
    const socket = this.#socket;
    if (parts.length === 1) return socket.write(parts[0] as Buffer);
    if (bytes <= MERGED) return socket.write(Buffer.concat(parts, bytes));
    socket.cork();
    let room = true;
    for (const part of parts) room = socket.write(part);
    socket.uncork();
    return room;
  }
}
