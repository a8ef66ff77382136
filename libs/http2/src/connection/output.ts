import type { Duplex } from 'node:stream';
import { type Guarded, guarding } from '@isthmus/runtime';
import { ConnectionError, DEFAULT_FRAME, ErrorCode, MAX_WINDOW } from '../codes.ts';
import { FRAME_HEAD } from '../frames.ts';
import { DEFAULT_SETTINGS } from '../settings.ts';
import { FloodGuard } from './flood-guard.ts';
import { LateFrames } from './late-frames.ts';

/**
 * DATA that leaves in one write, with its frames' heads, in bytes: with what TLS adds just less than IP's 64 KiB. A few bytes more
 * are a second segment and a trip of their own through the kernel; twice as much costs the agent twice the time a byte, and pings
 * wait behind it.
 */
const WRITE = 65_300;

/** Shortest frame that a write's limit may produce, in bytes. */
const SHORT = 1024;

/** A write of up to so many bytes is cheaper to copy into one buffer than to pass on part by part. */
const MERGED = 4 * 1024;

/**
 * Streams that may have bulk at hand to send, of all whose writers have more. What waits behind the socket outlives young garbage
 * collections: with 256 busy streams that read ahead V8 collected the whole heap forty times a second, for a third of an agent's time.
 */
const MAX_READY = 16;

/** Streams that may wait before those that have closed meanwhile are looked for. */
const PRUNE_AT = 1000;

/** Something with DATA to send. */
export interface Sender {
  readonly sendable: boolean;
  /** Whether it waits for its turn. It is stored here, because a Set of waiting streams would leave too much garbage in the old generation. */
  offered: boolean;
  /** Adds one frame with at most `limit` bytes of payload. @returns how many */
  sendFrame(output: Output, limit: number): number;
}

/** Has sent bulk, and may have more. */
export interface Refillable {
  refill(): void;
}

export interface OutputOptions {
  readonly socket: Duplex;
  /** Goes ahead of the first frame. */
  readonly greeting: Buffer;
  /** Runs the callback when what has been added until then should leave, in one write. */
  readonly later: (flush: () => void) => void;
  /** Most bytes of frames without a window that may wait for a peer that does not read. */
  readonly maxBacklog: number;
  /** The peer does not read what it asks for, or a callback of ours threw. */
  readonly failed: (error: Error) => void;
}

/**
 * What a connection sends. Streams take turns, a frame each, and wait while the socket or the peer's window asks them to; all other
 * frames go ahead of what waits.
 */
export class Output {
  /** The longest payload of a frame that the peer accepts, in bytes. */
  maxFrame = DEFAULT_FRAME;
  /** Guards what arrives: bytes sent allow for answers. */
  readonly floods = new FloodGuard();
  /** Wraps callbacks: an error that they throw fails the connection. */
  readonly guarded: Guarded;
  /** Total bytes written to the socket. */
  bytes = 0;
  readonly #socket: Duplex;
  readonly #later: (flush: () => void) => void;
  readonly #turn: () => void;
  readonly #maxBacklog: number;
  readonly #late: LateFrames;
  /** Streams that wait for a turn, in order; those before `#next` have had theirs. */
  #ready: Sender[] = [];
  #next = 0;
  #filling = false;
  #pruneAt = PRUNE_AT;
  /** Those that have sent all they had, and are asked for more once fewer streams are ready. */
  #empty: Refillable[] = [];
  /** What the peer allows on the whole connection, in bytes. */
  #window = DEFAULT_SETTINGS.initialWindowSize;
  #parts: Buffer[];
  #added: number;
  #scheduled = false;
  #ended = false;

  constructor({ socket, greeting, later, maxBacklog, failed }: OutputOptions) {
    this.#socket = socket;
    this.#parts = [greeting];
    this.#added = greeting.length;
    this.#later = later;
    this.#maxBacklog = maxBacklog;
    this.guarded = guarding(failed);
    this.#turn = this.guarded(() => this.#takeTurn());
    this.#late = new LateFrames((frames) => this.frame(frames), this.guarded);
    socket.on('drain', () => this.schedule());
  }

  /** Whether DATA may leave. */
  get flowing(): boolean {
    return this.#window > 0 && !this.#socket.writableNeedDrain;
  }

  /** Sends a frame that has no window. */
  frame(bytes: Buffer): void {
    this.add(bytes);
    this.schedule();
  }

  /** Sends a frame that may wait for others. */
  lateFrame(bytes: Buffer): void {
    if (!this.#ended) this.#late.add(bytes);
  }

  /** Adds a part of a frame: of DATA on a stream's turn, of others with a call of `schedule`. */
  add(part: Buffer): void {
    if (this.#ended) return;
    this.#parts.push(part);
    this.#added += part.length;
  }

  schedule(): void {
    if (this.#scheduled || this.#ended) return;
    this.#scheduled = true;
    this.#later(this.#turn);
  }

  /** Queues a stream that has something to send and may send it. */
  offer(sender: Sender): void {
    if (sender.offered) return;
    sender.offered = true;
    if (this.#ready.length >= this.#pruneAt) this.#prune();
    this.#ready.push(sender);
    this.schedule();
  }

  /** Asks for more once few others have some. */
  emptied(refillable: Refillable): void {
    this.#empty.push(refillable);
    this.schedule();
  }

  /** Enlarges the connection's window. @throws ConnectionError if it would exceed the largest window */
  widen(bytes: number): void {
    if (bytes === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'WINDOW_UPDATE of nothing');
    this.#window += bytes;
    if (this.#window > MAX_WINDOW) throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'a window beyond 2^31 - 1');
    if (this.#waiting + this.#empty.length > 0) this.schedule();
  }

  /** Sends all that may leave now, and then FIN. */
  end(): void {
    try {
      this.#late.flush();
      this.#flush();
    } finally {
      this.stop();
      this.#socket.end();
    }
  }

  /** Sends nothing more. */
  stop(): void {
    this.#ended = true;
    this.#late.stop();
  }

  #takeTurn(): void {
    this.#scheduled = false;
    if (this.#ended) return;
    this.#flush();
    if (this.#socket.writableLength > this.#maxBacklog)
      throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, 'the other side asks for more than it reads');
    // The socket or the window reports when there is room again.
    if (!this.flowing) return;
    this.#refill();
    // A socket that would take more than was written says nothing when it has.
    if (this.#waiting + this.#empty.length > 0) this.schedule();
  }

  #flush(): void {
    this.#fill();
    const late = this.#late.leaveWith(this.#added);
    if (late) this.add(late);
    const [parts, bytes] = [this.#parts, this.#added];
    if (bytes === 0) return;
    this.#parts = [];
    this.#added = 0;
    this.bytes += bytes;
    if (!this.#socket.destroyed) this.#write(parts, bytes);
  }

  #write(parts: readonly Buffer[], bytes: number): void {
    const socket = this.#socket;
    if (parts.length === 1) socket.write(parts[0] as Buffer);
    else if (bytes <= MERGED) socket.write(Buffer.concat(parts, bytes));
    else {
      socket.cork();
      for (const part of parts) socket.write(part);
      socket.uncork();
    }
  }

  #fill(): void {
    // A stream that ends may end the connection, which flushes.
    if (this.#filling || this.#waiting === 0 || !this.flowing) return;
    this.#filling = true;
    try {
      let room = WRITE;
      while (this.#waiting > 0 && this.#window > 0 && room > SHORT) {
        const sender = this.#ready[this.#next++] as Sender;
        sender.offered = false;
        if (!sender.sendable) continue;
        const sent = sender.sendFrame(this, Math.min(room - FRAME_HEAD, this.maxFrame, this.#window));
        room -= FRAME_HEAD + sent;
        this.#window -= sent;
        this.floods.sent(sent);
        if (sender.sendable) this.offer(sender);
      }
    } finally {
      this.#filling = false;
    }
    if (this.#next < this.#ready.length / 2) return;
    this.#ready = this.#ready.slice(this.#next);
    this.#next = 0;
  }

  /** Streams that wait for a turn. */
  get #waiting(): number {
    return this.#ready.length - this.#next;
  }

  /** Forgets streams that have nothing left to send: while nothing may leave, closed ones would pile up here. */
  #prune(): void {
    this.#ready = this.#ready.slice(this.#next).filter((sender) => {
      if (!sender.sendable) sender.offered = false;
      return sender.offered;
    });
    this.#next = 0;
    this.#pruneAt = Math.max(PRUNE_AT, 2 * this.#ready.length);
  }

  /** Asks those that are empty for more, the longest empty first, until as many as should be have something. */
  #refill(): void {
    if (this.#empty.length === 0) return;
    for (const each of this.#empty.splice(0, Math.max(0, MAX_READY - this.#waiting))) each.refill();
  }
}
