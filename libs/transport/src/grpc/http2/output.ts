import type { Socket } from 'node:net';
import { DEFAULT_FRAME, DEFAULT_SETTINGS, FloodGuard, MAX_WINDOW } from '@isthmus/http2';
import { type Guarded, guarding } from '@isthmus/runtime';
import type { ServerStream } from './stream.ts';

/** What may wait for the socket before streams are held back, in bytes: enough to keep it busy until it asks for more. */
const AHEAD = 64 * 1024;

/** Up to so many bytes are cheaper to copy into one buffer than to write one by one. */
const MERGED = 4 * 1024;

/**
 * How long the answer to a PING may wait for bulk to leave with, in milliseconds. Go's clients measure the way with the first packet
 * that they receive after each answer, to find how large their window must be. That matters behind bulk, where the answer leaves at once. Packets
 * that are short would each bring a PING and a WINDOW_UPDATE for it, and all but the first of a dial's come to nothing.
 */
const PATIENCE_MS = 100;

/** From so many bytes on, what leaves is bulk, and nothing waits. */
const BULK_OUTPUT = 1_024;

/** What a connection sends: all of one turn in one write. Streams take turns for what the socket and the peer's window allow. */
export class Output {
  /** The longest payload that the peer takes in a frame, in bytes. */
  maxFrame = DEFAULT_FRAME;
  /** Of what comes: what is sent allows for answers. */
  readonly floods = new FloodGuard();
  readonly #socket: Socket;
  /** Of what is called here nothing throws: it fails the connection. */
  readonly guarded: Guarded;
  readonly #flushLater: () => void;
  readonly #patienceEnds: () => void;
  /** Streams with data that found no room; first come, first served. */
  readonly #waiting = new Set<ServerStream>();
  /** How much data the peer still takes on the whole connection, in bytes. */
  #window = DEFAULT_SETTINGS.initialWindowSize;
  #parts: Buffer[] = [];
  #bytes = 0;
  /** What was added leaves at the end of this turn. */
  #scheduled = false;
  /** Frames that wait for bulk. */
  #patient: Buffer | undefined;
  #patience: NodeJS.Timeout | undefined;
  /** The socket asked to wait. */
  #full = false;
  #ended = false;

  /** @param failed called with an error that nobody else would catch */
  constructor(socket: Socket, failed: (error: Error) => void) {
    this.#socket = socket;
    this.guarded = guarding(failed);
    this.#flushLater = this.guarded(() => this.flush());
    this.#patienceEnds = this.guarded(() => this.#timeIsUp());
    const drained = () => {
      this.#full = false;
      this.#resume();
    };
    socket.on('drain', this.guarded(drained));
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
    if (data > 0) {
      this.#window -= data;
      this.floods.sent(data);
    }
    this.#parts.push(part);
    this.#bytes += part.length;
    if (this.#scheduled) return;
    this.#scheduled = true;
    process.nextTick(this.#flushLater);
  }

  /** Takes a frame that may wait. */
  addPatiently(frame: Buffer): void {
    if (this.#ended) return;
    this.#patient = this.#patient ? Buffer.concat([this.#patient, frame]) : frame;
    if (this.#patient.length >= BULK_OUTPUT) this.#losePatience();
    // Whatever comes while it runs waits no longer than what began it.
    else this.#patience ??= setTimeout(this.#patienceEnds, PATIENCE_MS);
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
    if (this.#patient && this.#bytes >= BULK_OUTPUT) this.#losePatience();
    const parts = this.#parts;
    const bytes = this.#bytes;
    this.#scheduled = false;
    if (parts.length === 0) return;
    this.#parts = [];
    this.#bytes = 0;
    if (this.#socket.destroyed) return;
    this.#full = !this.#write(parts, bytes);
    if (bytes >= AHEAD) this.#resume();
  }

  /** Sends what there is, and then FIN. */
  end(): void {
    if (this.#patient) this.#losePatience();
    this.flush();
    this.#ended = true;
    this.#socket.end();
  }

  /** The socket is gone. */
  stop(): void {
    this.#ended = true;
    clearTimeout(this.#patience);
  }

  #timeIsUp(): void {
    this.#patience = undefined;
    if (this.#patient) this.#losePatience();
  }

  #losePatience(): void {
    const frames = this.#patient as Buffer;
    this.#patient = undefined;
    this.add(frames);
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
