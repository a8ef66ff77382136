import type { Duplex } from 'node:stream';
import { ConnectionError, ErrorCode } from './codes.ts';
import { FloodGuard } from './flood-guard.ts';
import { FRAME_HEAD } from './frames.ts';

/** Most bytes of frames without a window that may wait for a peer that does not read. */
const TOO_MUCH = 8 * 1024 * 1024;

/**
 * DATA that leaves in one write, with its frames' heads, in bytes: with what TLS adds just less than IP's 64 KiB. A few bytes more
 * are a second segment and a trip of their own through the kernel; twice as much costs the agent twice the time a byte, and pings
 * wait behind it.
 */
const WRITE = 65_300;

/** Shortest frame that a write's limit may produce, in bytes. */
const SHORTEST_FRAME = 1024;

/**
 * Streams that may have bulk at hand to send, of all whose writers have more. What waits behind the socket outlives young garbage
 * collections: with 256 busy streams that read ahead V8 collected the whole heap forty times a second, for a third of an agent's time.
 */
const AHEAD = 16;

export type Sink = Pick<Duplex, 'write'>;

/** Something with DATA to send. */
export interface Sender {
  readonly sendable: boolean;
  /** Whether it waits for its turn. Sending stores this here, because a Set of waiting streams would leave too much garbage in the old generation. */
  offered: boolean;
  /** Writes one frame with at most `limit` bytes of payload, and returns how many. */
  sendFrame(sink: Sink, limit: number): number;
  /** What it had has been sent, and it may have more. */
  refill(): void;
}

/**
 * The sending side of a connection. Streams take turns, a frame each, and wait while the socket asks them to; all other frames
 * go ahead of what waits. What is sent within one turn of the event loop leaves in one write.
 */
export class Sending {
  readonly #socket: Duplex;
  readonly #failed: (error: Error) => void;
  #ready: Sender[] = [];
  /** Streams that have sent everything and are asked for more once fewer are ready. */
  #empty: Sender[] = [];
  #overflowed = false;
  #scheduled = false;
  /** The other side's limits. */
  maxFrame: number;
  #window: number;
  /** Guards what arrives: bytes sent allow for answers. */
  readonly floods = new FloodGuard();
  /** Total bytes written to the socket. */
  bytes = 0;

  /** @param failed the peer does not read what it asks for, or whoever writes threw when it was asked for more */
  constructor(socket: Duplex, limits: { maxFrame: number; window: number }, failed: (error: Error) => void) {
    this.#socket = socket;
    this.#failed = failed;
    this.maxFrame = limits.maxFrame;
    this.#window = limits.window;
    socket.on('drain', () => this.#schedule());
  }

  get window(): number {
    return this.#window;
  }

  /** Enlarges the connection's window. */
  allow(bytes: number): void {
    this.#window += bytes;
    this.#schedule();
  }

  /** Sends a frame that has no window. */
  frame(bytes: Buffer): void {
    this.#schedule();
    this.bytes += bytes.length;
    this.#socket.write(bytes);
    if (this.#overflowed || this.#socket.writableLength <= TOO_MUCH) return;
    this.#overflowed = true;
    this.#failed(new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, 'the other side does not read'));
  }

  /** Queues a stream that has something to send and may send it. */
  offer(sender: Sender): void {
    if (sender.offered) return;
    sender.offered = true;
    this.#ready.push(sender);
    this.#schedule();
  }

  /** A stream that has sent bulk, and should get more when few others have some. */
  emptied(sender: Sender): void {
    this.#empty.push(sender);
    this.#schedule();
  }

  /** Runs what nobody else would catch. What it throws ends the connection. */
  runGuarded(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.#failed(error as Error);
    }
  }

  #schedule(): void {
    if (this.#scheduled || this.#socket.destroyed) return;
    this.#scheduled = true;
    this.#socket.cork();
    setImmediate(() => this.#turn());
  }

  #turn(): void {
    this.runGuarded(() => this.#fill());
    this.#scheduled = false;
    this.#socket.uncork();
    // The socket or the window reports when there is room again.
    if (this.#window <= 0 || this.#socket.writableNeedDrain) return;
    this.runGuarded(() => this.#refill());
    // A socket that would take more than was written says nothing when it has.
    if (this.#ready.length + this.#empty.length > 0) this.#schedule();
  }

  #fill(): void {
    if (this.#socket.writableNeedDrain) return;
    let room = WRITE;
    while (this.#ready.length > 0 && this.#window > 0 && room > SHORTEST_FRAME) {
      const turn = this.#ready;
      this.#ready = [];
      let next = 0;
      while (next < turn.length && this.#window > 0 && room > SHORTEST_FRAME) {
        const sender = turn[next++] as Sender;
        sender.offered = false;
        if (!sender.sendable) continue;
        const sent = sender.sendFrame(this.#socket, Math.min(room - FRAME_HEAD, this.maxFrame, this.#window));
        room -= FRAME_HEAD + sent;
        this.#window -= sent;
        this.bytes += sent;
        this.floods.sent(sent);
        if (sender.sendable) this.offer(sender);
      }
      // Streams that did not get a turn come before those that did.
      if (next < turn.length) this.#ready = [...turn.slice(next), ...this.#ready];
    }
  }

  /** Asks those that are empty for more, the longest empty first, until as many as should be have something. */
  #refill(): void {
    if (this.#empty.length === 0) return;
    for (const sender of this.#empty.splice(0, Math.max(0, AHEAD - this.#ready.length))) sender.refill();
  }
}
