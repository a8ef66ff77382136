import type { Duplex } from 'node:stream';
import { type Guarded, guarding, Rounds } from '@isthmus/runtime';
import { ConnectionError, DEFAULT_FRAME, ErrorCode, MAX_WINDOW } from '../codes.ts';
import { FRAME_HEAD } from '../frames.ts';
import { DEFAULT_SETTINGS } from '../settings.ts';
import { FloodGuard } from './flood-guard.ts';
import { InFlight } from './in-flight.ts';
import { BEHIND_ANY, LateFrames, type Patience } from './late-frames.ts';
import { SendGroup } from './send-group.ts';

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

/** Streams of each group that may, however many groups there are: one that sends, and one that follows. */
const LEAST_READY = 2;

/**
 * What a group of streams sends in its turn, in bytes, while others wait. A frame is then no longer than that: as few as four turns
 * fit into a write, and more frames would cost the other side more than their bytes.
 */
const QUANTUM = 16 * 1024;

/** Something with DATA to send. */
export interface Sender {
  readonly sendable: boolean;
  /** Whether it waits for its turn. It is stored here, because a Set of waiting streams would leave too much garbage in the old generation. */
  offered: boolean;
  /** Default: streams without a tenant. */
  readonly group?: SendGroup;
  /** Adds one frame with at most `limit` bytes of payload. @returns how many */
  sendFrame(output: Output, limit: number): number;
}

/** Has sent bulk, and may have more. */
export interface BulkWriter {
  writeMore(): void;
}

export interface OutputOptions {
  readonly socket: Duplex;
  /** Goes ahead of the first frame. */
  readonly greeting: Buffer;
  /** Runs the callback when what has been added until then should leave, in one write. */
  readonly later: (flush: () => void) => void;
  /** Most bytes of frames without a window that may wait for a peer that does not read. */
  readonly maxBacklog: number;
  /** What late frames wait for. Default: any other frame. */
  readonly patience?: Patience;
  /** Makes a checkpoint (see `InFlight`). @param read called once the peer has read all that left before it */
  readonly checkpoint: (read: () => void) => Buffer;
  /** The peer does not read what it asks for, or a callback of ours threw. */
  readonly failed: (error: Error) => void;
}

/**
 * What a connection sends. Groups take turns by bytes, and streams of a group take turns, a frame each. They wait while the socket or
 * the peer's window asks them to; all other frames go ahead of what waits.
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
  readonly #checkpoint: OutputOptions['checkpoint'];
  /** Set once groups share the connection. */
  #inFlight: InFlight | undefined;
  readonly #late: LateFrames;
  readonly #common = new SendGroup();
  /** Groups with streams that wait for a turn. */
  readonly #ready = new Rounds<SendGroup['ready']>(QUANTUM);
  /** Streams that wait for a turn. */
  #waiting = 0;
  #filling = false;
  /** Groups with those that have sent all they had, and are asked for more once fewer streams of the group are ready. */
  readonly #empty = new Rounds<SendGroup['empty']>(1);
  /** What the peer allows on the whole connection, in bytes. */
  #window = DEFAULT_SETTINGS.initialWindowSize;
  #parts: Buffer[];
  #added: number;
  #scheduled = false;
  #ended = false;

  constructor({ socket, greeting, later, maxBacklog, patience = BEHIND_ANY, checkpoint, failed }: OutputOptions) {
    this.#socket = socket;
    this.#parts = [greeting];
    this.#added = greeting.length;
    this.#later = later;
    this.#maxBacklog = maxBacklog;
    this.#checkpoint = checkpoint;
    this.guarded = guarding(failed);
    this.#turn = this.guarded(() => this.#takeTurn());
    this.#late = new LateFrames(patience, (frames) => this.frame(frames), this.guarded);
    socket.on('drain', () => this.schedule());
  }

  /** Whether DATA may leave. */
  get flowing(): boolean {
    return this.#window > 0 && !this.#socket.writableNeedDrain && !this.#inFlight?.full;
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
    const { ready } = sender.group ?? this.#common;
    this.#waiting += ready.offer(sender);
    this.#ready.enter(ready);
    this.schedule();
  }

  /** Asks for more once few others of its group have some. */
  emptied(refillable: BulkWriter, { empty }: SendGroup = this.#common): void {
    empty.push(refillable);
    this.#empty.enter(empty);
    this.schedule();
  }

  /** Groups share the connection from now on. @param rtt its round-trip time, in milliseconds */
  share(rtt: () => number): void {
    this.#inFlight ??= new InFlight(rtt);
  }

  /** Enlarges the connection's window. @throws ConnectionError if it would exceed the largest window */
  widen(bytes: number): void {
    if (bytes === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'WINDOW_UPDATE with an increment of 0');
    this.#window += bytes;
    if (this.#window > MAX_WINDOW) throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'a window beyond 2^31 - 1');
    this.#goOn();
  }

  #goOn(): void {
    if (this.#waiting + this.#empty.size > 0) this.schedule();
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
      throw new ConnectionError(
        ErrorCode.ENHANCE_YOUR_CALM,
        'the other side sends requests faster than it reads answers',
      );
    // The socket or the window reports when there is room again. A group with nothing at hand would miss its turn then.
    const groups = Math.max(this.#empty.size, this.#ready.size, 1);
    if (this.flowing) this.#refill(Math.max(LEAST_READY, Math.floor(MAX_READY / groups)));
    else if (this.#waiting > 0) this.#refill(LEAST_READY);
    if (!this.flowing) return;
    // A socket that would take more than was written says nothing when it has.
    this.#goOn();
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
      let [room, filled] = [WRITE, 0];
      for (let line = this.#ready.current; line && this.#window > 0 && room > SHORT; line = this.#ready.current) {
        const sender = line.shift();
        if (!sender) {
          this.#ready.leave();
          continue;
        }
        this.#waiting--;
        sender.offered = false;
        if (!sender.sendable) continue;
        const longest = this.#ready.size > 1 ? Math.min(this.maxFrame, QUANTUM) : this.maxFrame;
        const sent = sender.sendFrame(this, Math.min(room - FRAME_HEAD, longest, this.#window));
        room -= FRAME_HEAD + sent;
        this.#window -= sent;
        filled += sent;
        this.floods.sent(sent);
        if (sender.sendable) this.offer(sender);
        this.#ready.spend(FRAME_HEAD + sent);
      }
      if (this.#inFlight?.send(filled)) this.#addCheckpoint(this.#inFlight);
    } finally {
      this.#filling = false;
    }
  }

  #addCheckpoint(inFlight: InFlight): void {
    const read = inFlight.checkpoint();
    const answered = this.guarded(() => {
      read();
      this.#goOn();
    });
    this.add(this.#checkpoint(answered));
  }

  /** Asks those that are empty for more, the longest empty of each group first, until `ready` of its streams have something. */
  #refill(ready: number): void {
    for (let groups = this.#empty.size; groups > 0; groups--) {
      const line = this.#empty.current as SendGroup['empty'];
      const some = line.take(ready - line.ready.length);
      if (line.length === 0) this.#empty.leave();
      else this.#empty.pass();
      for (const each of some) each.writeMore();
    }
  }
}
