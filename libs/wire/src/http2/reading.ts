import { printable } from '@isthmus/runtime';
import {
  ConnectionError,
  codeName,
  ErrorCode,
  Flag,
  FRAME_HEAD,
  FrameType,
  HeadTooLong,
  MAX_WINDOW,
  PREFACE,
  read31,
  readSettings,
  unpadded,
  windowUpdateFrame,
} from './frames.ts';
import { HeadReader, type ReceivedHead } from './heads.ts';
import type { Output } from './output.ts';
import type { Streams } from './streams.ts';
import { type ConnectionReads, readBudget } from './ticks.ts';

interface Rule {
  readonly name: string;
  /** What its stream id may be: a stream, the connection, or either. */
  readonly on: 'stream' | 'connection' | 'either';
  /** Exact length of its payload, in bytes. */
  readonly size?: number;
  /** Shortest and longest length of its payload, in bytes. */
  readonly least?: number;
  readonly most?: number;
}

/** By the frames' types (RFC 9113 section 6). */
const RULES: readonly Rule[] = [
  { name: 'DATA', on: 'stream' },
  { name: 'HEADERS', on: 'stream' },
  { name: 'PRIORITY', on: 'stream', size: 5 },
  { name: 'RST_STREAM', on: 'stream', size: 4 },
  { name: 'SETTINGS', on: 'connection' },
  { name: 'PUSH_PROMISE', on: 'stream' },
  { name: 'PING', on: 'connection', size: 8 },
  { name: 'GOAWAY', on: 'connection', least: 8 },
  { name: 'WINDOW_UPDATE', on: 'either', size: 4 },
  { name: 'CONTINUATION', on: 'stream' },
];

/** Longer than any mark. Each is kept until somebody reads it. */
const MARK: Rule = { name: 'MARK', on: 'stream', most: 64 };

function broken(text: string): ConnectionError {
  return new ConnectionError(ErrorCode.PROTOCOL_ERROR, text);
}

function missized(name: string, length: number): ConnectionError {
  return new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, `${name} of ${length} bytes`);
}

const NOTHING = Buffer.alloc(0);

interface FrameHandler {
  /** Called with a whole frame of any type except DATA. The payload is a view that is valid only during the call. */
  frame(type: number, flags: number, stream: number, payload: Buffer): void;
  /**
   * Called with bytes of a DATA frame as they arrive; a frame may arrive in many parts.
   * @param last whether the frame is over
   * @param padding bytes that count against the windows but carry nothing
   */
  data(stream: number, bytes: Buffer, flags: number, last: boolean, padding: number): void;
}

/**
 * Splits a connection's bytes into frames. It passes DATA on as it arrives, without a copy and without waiting for the rest of the
 * frame. Other frames are short, and are passed on whole.
 */
export class FrameReader {
  readonly #handler: FrameHandler;
  readonly #maxFrame: number;
  /** A frame's head that arrives in parts. */
  #head: Buffer | undefined;
  #headBytes = 0;
  #type = -1;
  #flags = 0;
  #stream = 0;
  /** Bytes of the current frame's payload that have not arrived yet. */
  #left = 0;
  /** A payload that arrives in parts and must be passed on whole. */
  #whole: Buffer | undefined;
  #stopped = false;
  #rests = false;

  /** @param maxFrame the longest payload that the other side may send, in bytes */
  constructor(handler: FrameHandler, maxFrame: number) {
    this.#handler = handler;
    this.#maxFrame = maxFrame;
  }

  /** Passes nothing more on, not even from the chunk that is being read now. */
  stop(): void {
    this.#stopped = true;
  }

  /** Leaves what is behind the current frame to a later call. */
  rest(): void {
    this.#rests = true;
  }

  /**
   * Returns what it has left after `rest`, which may be nothing.
   * @throws ConnectionError for a malformed frame
   */
  read(chunk: Buffer): Buffer | undefined {
    let at = 0;
    while (!this.#stopped) {
      if (this.#type < 0) {
        if (this.#rests) {
          this.#rests = false;
          return chunk.subarray(at);
        }
        if (at === chunk.length) return undefined;
        let head = chunk;
        let start = at;
        at += FRAME_HEAD;
        if (this.#headBytes > 0 || at > chunk.length) {
          at = this.#collectHead(chunk, start);
          if (this.#headBytes < FRAME_HEAD) return undefined;
          this.#headBytes = 0;
          head = this.#head as Buffer;
          start = 0;
        }
        this.#left = ((head[start] as number) << 16) | ((head[start + 1] as number) << 8) | (head[start + 2] as number);
        if (this.#left > this.#maxFrame)
          throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, `a frame of ${this.#left} bytes`);
        this.#type = head[start + 3] as number;
        this.#flags = head[start + 4] as number;
        // Without the bit before it, which has no meaning.
        const high = (((head[start + 5] as number) & 0x7f) << 24) | ((head[start + 6] as number) << 16);
        this.#stream = high | ((head[start + 7] as number) << 8) | (head[start + 8] as number);
      }
      if (at === chunk.length && this.#left > 0) return undefined;
      const end = Math.min(at + this.#left, chunk.length);
      const part = at === end ? NOTHING : chunk.subarray(at, end);
      this.#left -= end - at;
      at = end;
      const type = this.#type;
      const flags = this.#flags;
      const last = this.#left === 0;
      if (type === FrameType.DATA && !(flags & Flag.PADDED)) {
        if (last) this.#type = -1;
        this.#handler.data(this.#stream, part, flags, last, 0);
      } else if (last && !this.#whole && type !== FrameType.DATA) {
        this.#type = -1;
        this.#handler.frame(type, flags, this.#stream, part);
      } else this.#collect(part);
    }
    return undefined;
  }

  /** A head arrives in parts. @returns how much of the chunk was read */
  #collectHead(chunk: Buffer, at: number): number {
    this.#head ??= Buffer.alloc(FRAME_HEAD);
    const copied = chunk.copy(this.#head, this.#headBytes, at);
    this.#headBytes += copied;
    return at + copied;
  }

  #collect(part: Buffer): void {
    let payload = part;
    if (this.#whole || this.#left > 0) {
      this.#whole ??= Buffer.allocUnsafe(part.length + this.#left);
      this.#whole.set(part, this.#whole.length - this.#left - part.length);
      if (this.#left > 0) return;
      payload = this.#whole;
    }
    const { type, flags, stream } = { type: this.#type, flags: this.#flags, stream: this.#stream };
    this.#whole = undefined;
    this.#type = -1;
    if (type === FrameType.DATA) {
      const bytes = unpadded(payload);
      this.#handler.data(stream, bytes, flags, true, payload.length - bytes.length);
    } else this.#handler.frame(type, flags, stream, payload);
  }
}

/** So many frames are counted together: a call for each is what a dial is made of. */
const COUNTED = 32;

/** The connection's window. The streams' own windows bound all streams together. */
export const CONNECTION_WINDOW = MAX_WINDOW;

/** What the other side says of the connection as a whole. */
export interface ReadingSink {
  /** What the connection has read in this tick of the event loop. */
  readonly reads: ConnectionReads;
  onSettings(): void;
  onPing(opaque: Buffer): void;
  onPong(): void;
  /** The other side is leaving: gracefully, or at once with a reason. */
  onGoaway(reason?: Error): void;
}

interface ReadingOptions {
  readonly role: 'client' | 'server';
  readonly streams: Streams;
  readonly output: Output;
  readonly sink: ReadingSink;
}

/** The receiving side of a connection: reads the other side's frames and applies them to streams, windows and PINGs. */
export class Reading implements FrameHandler {
  readonly #streams: Streams;
  readonly #output: Output;
  readonly #sink: ReadingSink;
  readonly #reader: FrameReader;
  readonly #heads: HeadReader;
  #prefaceLeft: number;
  /** Whether the other side's first SETTINGS have come. */
  #greeted = false;
  /** Bytes received and not yet returned to the connection's window. */
  #received = 0;
  /** Frames, and parts of DATA. */
  #uncounted = 0;

  constructor({ role, streams, output, sink }: ReadingOptions) {
    this.#streams = streams;
    this.#output = output;
    this.#sink = sink;
    const { config } = output;
    this.#reader = new FrameReader(this, config.frameBytes);
    const late = output.guarded(() => {
      throw new ConnectionError(
        ErrorCode.ENHANCE_YOUR_CALM,
        `a head that was not complete after ${config.headMs / 1000} s`,
      );
    });
    this.#heads = new HeadReader(config, late);
    this.#prefaceLeft = role === 'server' ? PREFACE.length : 0;
  }

  /**
   * Returns what it has left to the next tick of the event loop, which may be nothing, if it has read enough in this one.
   * @throws ConnectionError for malformed HTTP/2, and errors of handlers
   */
  read(chunk: Buffer): Buffer | undefined {
    const bytes = this.#prefaceLeft > 0 ? this.#readPreface(chunk) : chunk;
    const left = bytes.length > 0 ? this.#reader.read(bytes) : undefined;
    const { resets } = this.#streams;
    if (resets.exceeded) resets.check();
    return left;
  }

  /** Reads nothing more, not even the rest of the current chunk. */
  stop(): void {
    this.#reader.stop();
    this.#heads.drop();
  }

  #readPreface(chunk: Buffer): Buffer {
    const start = PREFACE.length - this.#prefaceLeft;
    const part = chunk.subarray(0, this.#prefaceLeft);
    if (!PREFACE.subarray(start, start + part.length).equals(part))
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'the other side does not speak HTTP/2');
    this.#prefaceLeft -= part.length;
    return chunk.subarray(part.length);
  }

  data(id: number, bytes: Buffer, flags: number, last: boolean, padding: number): void {
    if (++this.#uncounted === COUNTED) this.#countFrames();
    if (!this.#greeted || id === 0 || this.#heads.begun) this.#check(FrameType.DATA, flags, id, bytes.length);
    const length = bytes.length + padding;
    const { floods, config } = this.#output;
    if (length > 0) floods.earned += length * config.floodEarnedByByte;
    // Each stream ends once, so the frame that ends it may be empty.
    else if (!(flags & Flag.END_STREAM)) floods.came(FrameType.DATA);
    this.#received += length;
    if (this.#received > CONNECTION_WINDOW / 2) {
      this.#output.frame(windowUpdateFrame(0, this.#received));
      this.#received = 0;
    }
    const stream = this.#streams.get(id) ?? this.#streams.known(id, 'DATA');
    if (stream) stream.receiveData(bytes, padding, last && (flags & Flag.END_STREAM) !== 0);
    else if (last) this.#streams.late(id);
  }

  #countFrames(): void {
    this.#uncounted = 0;
    const bytes = COUNTED * this.#output.config.frameReadBytes;
    if (readBudget.count(this.#sink.reads, bytes)) this.#reader.rest();
  }

  frame(type: number, flags: number, id: number, payload: Buffer): void {
    if (++this.#uncounted === COUNTED) this.#countFrames();
    this.#check(type, flags, id, payload.length);
    switch (type) {
      // Heads, marks and resets are bounded elsewhere, for each stream.
      case FrameType.HEADERS:
      case FrameType.CONTINUATION: {
        const head = this.#readHead(type, flags, id, payload);
        if (!head) break;
        this.#streams.receiveHead(head);
        const { headReadBytes, frameReadBytes, headFields } = this.#output.config;
        const fields = head.fields?.length ?? headFields;
        const cost = headReadBytes + fields * frameReadBytes + 3 * head.bytes;
        if (readBudget.count(this.#sink.reads, cost)) this.#reader.rest();
        break;
      }
      case FrameType.RST_STREAM:
        this.#streams.receiveReset(id, payload.readUInt32BE(0));
        break;
      case FrameType.MARK: {
        const stream = this.#streams.get(id) ?? this.#streams.known(id, 'MARK');
        if (stream) stream.receiveMark(payload);
        else this.#output.floods.came(type);
        break;
      }
      default:
        this.#onControl(type, flags, id, payload);
    }
  }

  #onControl(type: number, flags: number, id: number, payload: Buffer): void {
    this.#output.floods.came(type);
    // A PING leaves behind our SETTINGS, so its answer says that they were read, too.
    if ((type === FrameType.SETTINGS || type === FrameType.PING) && flags & Flag.ACK) this.#streams.excess = 0;
    switch (type) {
      case FrameType.SETTINGS:
        if (!(flags & Flag.ACK)) {
          this.#streams.adopt(readSettings(payload));
          this.#sink.onSettings();
        }
        break;
      case FrameType.PING:
        if (flags & Flag.ACK) this.#sink.onPong();
        else this.#sink.onPing(payload);
        break;
      case FrameType.GOAWAY:
        this.#onGoaway(payload);
        break;
      case FrameType.WINDOW_UPDATE:
        this.#onWindowUpdate(id, read31(payload, 0));
        break;
      default:
      // PRIORITY asks for what we do not do. Other types are unknown, and skipped (section 5.5).
    }
  }

  /**
   * Checks what does not depend on the state of a frame's stream, at either end of a connection without server push.
   * @throws ConnectionError
   */
  #check(type: number, flags: number, id: number, length: number): void {
    // Section 3.4: a preface ends with SETTINGS, and the other side cannot answer before it.
    if (!this.#greeted && (type !== FrameType.SETTINGS || flags & Flag.ACK)) throw broken('SETTINGS must come first');
    this.#greeted = true;
    const rule = type === FrameType.MARK ? MARK : RULES[type];
    // Unknown types are ignored (section 5.5).
    if (rule) {
      const { name, on, size, least = 0, most = length } = rule;
      if (id === 0 ? on === 'stream' : on === 'connection') throw broken(`${name} on stream ${id}`);
      if ((size !== undefined && length !== size) || length < least || length > most) throw missized(name, length);
    }
    if (type === FrameType.PUSH_PROMISE) throw broken('PUSH_PROMISE, which was not enabled');
    if (type === FrameType.SETTINGS && flags & Flag.ACK && length > 0) throw missized('the answer to SETTINGS', length);
    if (this.#heads.begun || type === FrameType.CONTINUATION) this.#heads.expect(type, id);
  }

  #readHead(type: number, flags: number, id: number, payload: Buffer): ReceivedHead | undefined {
    try {
      if (type === FrameType.HEADERS) return this.#heads.headers(id, flags, payload);
      return this.#heads.continuation(flags, payload);
    } catch (error) {
      if (error instanceof HeadTooLong) this.#streams.answerLong(id);
      throw error;
    }
  }

  #onGoaway(payload: Buffer): void {
    const code = payload.readUInt32BE(4);
    if (code !== ErrorCode.NO_ERROR) {
      const text = printable(payload.toString('utf8', 8).slice(0, this.#output.config.reasonChars));
      this.#sink.onGoaway(new Error(`the other side closed the connection: ${codeName(code)} ${text}`.trim()));
      return;
    }
    this.#streams.refusedAfter(read31(payload, 0));
    this.#sink.onGoaway();
  }

  #onWindowUpdate(id: number, bytes: number): void {
    if (id === 0) this.#output.widen(bytes);
    else this.#streams.known(id, 'WINDOW_UPDATE')?.widen(bytes);
  }
}
