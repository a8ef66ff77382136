import type { Duplex } from 'node:stream';
import { type Guarded, guarding, Queue, Rounds, type TakesTurns, type UnsentBound } from '@isthmus/runtime';
import { type Config, WIRE } from '../defaults.ts';
import { FloodGuard } from './floods.ts';
import {
  ConnectionError,
  DEFAULT_FRAME,
  DEFAULT_SETTINGS,
  ErrorCode,
  FRAME_HEAD,
  MAX_WINDOW,
  NO_WORD,
  putHead,
} from './frames.ts';
import { behindAny, type InFlight, type Patience } from './pings.ts';

/**
 * Streams of a connection that share it with those of other groups. Groups that have something to send get the same share of it. In a group,
 * streams with little to send take every other turn, so that they wait for few others.
 */
export class SendGroup implements TakesTurns {
  next: this | undefined = undefined;
  credit = 0;
  readonly name: string | undefined;
  /** Open streams. */
  streams = 0;
  /** Set once one of them waits to be asked for more. */
  writers: WriterLine | undefined;
  /** Those that wait for their turn to send. */
  readonly #bulk = new Queue<Sender>();
  readonly #small = new Queue<Sender>();
  #wasSmall = false;
  #pruneAt: number;
  readonly #config: Config;

  constructor(name?: string, config: Config = WIRE) {
    this.name = name;
    this.#config = config;
    this.#pruneAt = config.pruneAt;
  }

  /** How many wait for their turn. */
  get size(): number {
    return this.#bulk.size + this.#small.size;
  }

  /** @returns how many were forgotten for it */
  offer(sender: Sender): number {
    const forgotten = this.#bulk.size + this.#small.size >= this.#pruneAt ? this.#prune() : 0;
    (sender.pending <= this.#config.smallBytes ? this.#small : this.#bulk).push(sender);
    return forgotten;
  }

  shift(): Sender | undefined {
    this.#wasSmall = this.#small.size > 0 && !(this.#wasSmall && this.#bulk.size > 0);
    return (this.#wasSmall ? this.#small : this.#bulk).shift();
  }

  /** Forgets streams that have nothing left to send: while nothing may leave, closed ones would pile up here. */
  #prune(): number {
    const waits = (sender: Sender) => {
      if (!sender.sendable) sender.offered = false;
      return sender.offered;
    };
    const before = this.size;
    this.#bulk.filter(waits);
    this.#small.filter(waits);
    this.#pruneAt = Math.max(this.#config.pruneAt, 2 * this.size);
    return before - this.size;
  }
}

/** Bulk writers of a group that wait to be asked for more. */
class WriterLine extends Queue<BulkWriter> implements TakesTurns {
  next: this | undefined = undefined;
  credit = 0;
  readonly group: SendGroup;

  constructor(group: SendGroup) {
    super();
    this.group = group;
  }
}

/** Something with DATA to send. */
export interface Sender {
  readonly sendable: boolean;
  /** Bytes that it has to send. */
  readonly pending: number;
  /** Whether it waits for its turn. Stored here, because a Set of waiting streams would leave too much garbage in the old generation. */
  offered: boolean;
  /** Default: streams without a group. */
  readonly group?: SendGroup;
  /** Adds one frame with at most `limit` bytes of payload. @returns how many */
  sendFrame(output: Output, limit: number): number;
}

/** A writer that has sent bulk, and may have more. */
export interface BulkWriter {
  /** Called when it is its turn. */
  writeMore(): void;
}

interface OutputOptions {
  readonly socket: Duplex;
  /** Sent ahead of the first frame. */
  readonly greeting: Buffer;
  /** Runs the callback a little later. Whatever has been added by then leaves in one write. */
  readonly defer: (flush: () => void) => void;
  readonly config: Config;
  /** What late frames wait for. Default: any other frame. */
  readonly patience?: Patience;
  /** Bounds what the peer has not read. Default: only the windows and the socket do. */
  readonly inFlight?: InFlight | undefined;
  /** Bounds what the socket has not sent. Default: only its stream does. */
  readonly unsent?: Pick<UnsentBound, 'bytes' | 'follow'> | undefined;
  /** Makes a checkpoint (see `InFlight`). @param read called once the peer has read all that left before it */
  readonly checkpoint: (read: () => void) => Buffer;
  /** The peer does not read what it asks for, or a callback of ours threw. */
  readonly failed: (error: Error) => void;
}

/**
 * What a connection sends. Groups take turns by bytes (deficit round robin), and the streams of a group take turns by frames. DATA waits
 * for the socket and for the peer's window. All other frames overtake it.
 */
export class Output {
  /** The longest payload of a frame that the peer accepts, in bytes. */
  maxFrame = DEFAULT_FRAME;
  /** Guards what arrives. It is here because sent bytes earn the peer its answers. */
  readonly floods: FloodGuard;
  /** `Connection.allow` replaces it. */
  config: Config;
  /** Wraps callbacks: an error that they throw fails the connection. */
  readonly guarded: Guarded;
  /** Total bytes written to the socket. */
  bytes = 0;
  readonly #socket: Duplex;
  readonly #defer: (flush: () => void) => void;
  readonly #sendSoon: () => void;
  readonly #checkpoint: OutputOptions['checkpoint'];
  readonly #inFlight: InFlight | undefined;
  readonly #unsent: OutputOptions['unsent'];
  /** DATA since the path's rate was asked for, in bytes. */
  #unfollowed = 0;
  /** Called when a write has left that took the last room. */
  readonly #written = () => this.#scheduleIfWaiting();
  readonly #patience: Patience;
  /** Frames that wait until others leave, so that the peer does not wake up for each. */
  #late: Buffer | undefined;
  #lateTimer: NodeJS.Timeout | undefined;
  readonly #lateIsUp: () => void;
  readonly #common: SendGroup;
  /** By group: the streams that have DATA to send, and wait for their turn. */
  readonly #groups: Rounds<SendGroup>;
  /** How many streams wait in all these groups. */
  #readyStreams = 0;
  #addingData = false;
  /** By group: the bulk writers that are asked for more once fewer streams of the group are ready. */
  readonly #writerLines = new Rounds<WriterLine>(1);
  /** What the peer allows on the whole connection, in bytes. */
  #window = DEFAULT_SETTINGS.initialWindowSize;
  /** What is to be written: pieces, and heads of frames, which are four numbers each until then (see `head`). */
  #parts: (Uint8Array | number)[];
  #addedBytes: number;
  #scheduled = false;
  #ended = false;

  constructor(options: OutputOptions) {
    const { socket, greeting, defer, config, patience = behindAny(config), checkpoint, failed } = options;
    this.config = config;
    this.floods = new FloodGuard(config);
    this.#common = new SendGroup(undefined, config);
    this.#groups = new Rounds(config.groupTurnBytes);
    this.#socket = socket;
    this.#parts = [greeting];
    this.#addedBytes = greeting.length;
    this.#defer = defer;
    this.#inFlight = options.inFlight;
    this.#unsent = options.unsent;
    this.#checkpoint = checkpoint;
    this.guarded = guarding(failed);
    this.#sendSoon = this.guarded(this.#send.bind(this));
    this.#patience = patience;
    this.#lateIsUp = this.guarded(() => {
      this.#lateTimer = undefined;
      this.#sendLate();
    });
    socket.on('drain', () => this.schedule());
  }

  /** Whether DATA may leave. */
  get hasRoom(): boolean {
    return this.#window > 0 && !this.#socket.writableNeedDrain && this.#room() > this.config.shortestFrameBytes;
  }

  /** Sends a frame that has no window. */
  frame(bytes: Buffer): void {
    this.add(bytes);
    this.schedule();
  }

  /** Adds the head of a frame, as numbers: few frames need a buffer of their own. @param word the payload, if it is one number of 32 bits */
  head(type: number, flags: number, stream: number, length: number, word = NO_WORD): void {
    if (this.#ended) return;
    this.#parts.push(length, (type << 8) | flags, stream, word);
    this.#addedBytes += word === NO_WORD ? FRAME_HEAD : FRAME_HEAD + length;
  }

  /** Sends a frame that may wait for others. */
  lateFrame(bytes: Buffer): void {
    if (this.#ended) return;
    this.#late = this.#late ? Buffer.concat([this.#late, bytes]) : bytes;
    if (this.#late.length >= this.#patience.mostBytes) this.#sendLate();
    // One that comes while the timer runs waits no longer than the first.
    else this.#lateTimer ??= setTimeout(this.#lateIsUp, this.#patience.ms);
  }

  #sendLate(): void {
    const late = this.#late;
    this.#late = undefined;
    if (late) this.frame(late);
  }

  /** Adds a part of a frame: of DATA on a stream's turn, of others with a call of `schedule`. */
  add(part: Uint8Array): void {
    if (this.#ended) return;
    this.#parts.push(part);
    this.#addedBytes += part.length;
  }

  schedule(): void {
    if (this.#scheduled || this.#ended) return;
    this.#scheduled = true;
    this.#defer(this.#sendSoon);
  }

  /** Queues a stream that has something to send and may send it. */
  offer(sender: Sender): void {
    if (sender.offered) return;
    sender.offered = true;
    const group = sender.group ?? this.#common;
    this.#readyStreams += 1 - group.offer(sender);
    if (!group.next) this.#groups.enter(group);
    if (!this.#scheduled) this.schedule();
  }

  /** Asks a writer for more once few other streams of its group have DATA. */
  awaitTurn(writer: BulkWriter, group = this.#common): void {
    group.writers ??= new WriterLine(group);
    group.writers.push(writer);
    this.#writerLines.enter(group.writers);
    this.schedule();
  }

  /** Groups share the connection from now on. */
  share(): void {
    this.#inFlight?.share();
  }

  /** How many bytes a write may have now. */
  #room(): number {
    const { writeBytes } = this.config;
    const unsentRoom = this.#unsent ? this.#unsent.bytes - this.#socket.writableLength : writeBytes;
    return Math.min(writeBytes, unsentRoom, this.#inFlight?.room ?? writeBytes);
  }

  /** Enlarges the connection's window. @throws ConnectionError if it would exceed the largest window */
  widen(bytes: number): void {
    if (bytes === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'WINDOW_UPDATE with an increment of 0');
    this.#window += bytes;
    if (this.#window > MAX_WINDOW) throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'a window beyond 2^31 - 1');
    this.#scheduleIfWaiting();
  }

  #scheduleIfWaiting(): void {
    if (this.#readyStreams + this.#writerLines.size > 0) this.schedule();
  }

  /** Sends all that may leave now, and then FIN. */
  end(): void {
    try {
      this.#sendLate();
      this.#flush();
    } finally {
      this.stop();
      this.#socket.end();
    }
  }

  /** Sends nothing more. */
  stop(): void {
    this.#ended = true;
    clearTimeout(this.#lateTimer);
  }

  #send(): void {
    this.#scheduled = false;
    if (this.#ended) return;
    this.#flush();
    if (this.#socket.writableLength > this.config.backlogBytes)
      throw new ConnectionError(
        ErrorCode.ENHANCE_YOUR_CALM,
        'the other side sends requests faster than it reads answers',
      );
    if (this.#readyStreams === 0 && this.#writerLines.size === 0) return;
    // While DATA may not leave, each group still keeps something at hand. Otherwise it would miss its turn once there is room again.
    const groups = Math.max(this.#writerLines.size, this.#groups.size, 1);
    if (this.hasRoom)
      this.#askWriters(Math.max(this.config.readyStreamsOfGroup, Math.floor(this.config.readyStreams / groups)));
    else if (this.#readyStreams > 0) this.#askWriters(this.config.readyStreamsOfGroup);
    if (!this.hasRoom) return;
    // A socket that still has room emits no `drain`.
    this.#scheduleIfWaiting();
  }

  /** Writes what was added to the socket, and DATA as far as it may leave. */
  #flush(): void {
    if (this.#readyStreams > 0) this.#addData();
    if (this.#late && this.#addedBytes >= this.#patience.leastBytes) {
      this.add(this.#late);
      this.#late = undefined;
    }
    const parts = this.#parts;
    const bytes = this.#addedBytes;
    if (bytes === 0) return;
    this.#parts = [];
    this.#addedBytes = 0;
    this.bytes += bytes;
    const socket = this.#socket;
    if (socket.destroyed) return;
    const [first] = parts;
    // A stream that holds little emits no `drain` once DATA may be written again.
    const left = (this.#unsent?.bytes ?? Number.POSITIVE_INFINITY) - socket.writableLength - bytes;
    const written = left <= this.config.shortestFrameBytes ? this.#written : undefined;
    if (parts.length === 1 && typeof first === 'object') socket.write(first, written);
    else if (bytes <= this.config.mergedWriteBytes) socket.write(joined(parts, bytes), written);
    else {
      socket.cork();
      const all = [...pieces(parts)];
      for (const [index, piece] of all.entries()) socket.write(piece, index === all.length - 1 ? written : undefined);
      socket.uncork();
    }
  }

  #addData(): void {
    // A stream that ends may end the connection, which flushes.
    if (this.#addingData || this.#window <= 0 || this.#socket.writableNeedDrain) return;
    const { shortestFrameBytes, groupTurnBytes, floodEarnedByFrame, floodEarnedByByte } = this.config;
    let room = this.#room();
    if (room <= shortestFrameBytes) return;
    let filled = 0;
    const groups = this.#groups;
    this.#addingData = true;
    try {
      for (
        let group = groups.current;
        group && this.#window > 0 && room > shortestFrameBytes;
        group = groups.size > 0 ? groups.current : undefined
      ) {
        const sender = group.shift();
        if (!sender) {
          groups.leave();
          continue;
        }
        this.#readyStreams--;
        sender.offered = false;
        if (!sender.sendable) continue;
        const longest = groups.size > 1 ? Math.min(this.maxFrame, groupTurnBytes) : this.maxFrame;
        const sent = sender.sendFrame(this, Math.min(room - FRAME_HEAD, longest, this.#window));
        room -= FRAME_HEAD + sent;
        this.#window -= sent;
        filled += sent;
        this.floods.earned += floodEarnedByFrame + sent * floodEarnedByByte;
        if (sender.sendable) this.offer(sender);
        // Alone, there is nobody to be fair to.
        if (groups.size > 1) groups.spend(FRAME_HEAD + sent);
        else if (this.#readyStreams === 0) groups.leave();
      }
      if (this.#inFlight?.send(filled)) this.#addCheckpoint(this.#inFlight);
      this.#unfollowed += filled;
      // Soon enough on a path that has become thin.
      if (this.#unsent && this.#unfollowed >= Math.min(4 * this.#unsent.bytes, this.config.followBytes)) {
        this.#unfollowed = 0;
        this.#unsent.follow();
      }
    } finally {
      this.#addingData = false;
    }
  }

  #addCheckpoint(inFlight: InFlight): void {
    const read = inFlight.checkpoint();
    const answered = this.guarded(() => {
      read();
      this.#scheduleIfWaiting();
    });
    this.add(this.#checkpoint(answered));
  }

  /** Asks writers for more, those that have waited longest first, until `ready` streams of each group have something. */
  #askWriters(ready: number): void {
    for (let groups = this.#writerLines.size; groups > 0; groups--) {
      const line = this.#writerLines.current as WriterLine;
      const some: BulkWriter[] = [];
      for (let room = ready - line.group.size; room > 0 && line.size > 0; room--) some.push(line.shift() as BulkWriter);
      if (line.size === 0) this.#writerLines.leave();
      else this.#writerLines.pass();
      for (const each of some) each.writeMore();
    }
  }
}

/** All parts in one buffer. */
function joined(parts: readonly (Uint8Array | number)[], length: number): Buffer {
  const bytes = Buffer.allocUnsafe(length);
  let at = 0;
  for (let index = 0; index < parts.length; index++) {
    const part = parts[index] as Uint8Array | number;
    if (typeof part === 'number') {
      const [kind, stream, word] = [parts[++index] as number, parts[++index] as number, parts[++index] as number];
      at = putHead(bytes, at, part, kind, stream, word);
    } else {
      bytes.set(part, at);
      at += part.length;
    }
  }
  return bytes;
}

/** The parts one by one. Heads next to each other are one piece. */
function* pieces(parts: readonly (Uint8Array | number)[]): Iterable<Uint8Array> {
  for (let index = 0; index < parts.length; ) {
    const from = index;
    let length = 0;
    for (; typeof parts[index] === 'number'; index += 4)
      length += parts[index + 3] === NO_WORD ? FRAME_HEAD : FRAME_HEAD + (parts[index] as number);
    yield index > from ? joined(parts.slice(from, index), length) : (parts[index++] as Uint8Array);
  }
}
