import { ConnectionError, codeName, ErrorCode, Flag, FrameType, MAX_WINDOW } from '../codes.ts';
import { PREFACE, windowUpdateFrame } from '../frames.ts';
import { HeadReader, type ReceivedHead } from '../head.ts';
import { DEFAULT_SETTINGS, readSettings, type Settings } from '../settings.ts';
import { FrameChecks } from './frame-checks.ts';
import { type FrameHandler, FrameReader } from './frame-reader.ts';
import type { Output } from './output.ts';
import type { Streams } from './streams.ts';

/** The connection's window. The streams' own windows bound all streams together. */
export const CONNECTION_WINDOW = MAX_WINDOW;

/** What the other side says of the connection as a whole. */
export interface ReadingSink {
  onSettings(): void;
  onPing(opaque: Buffer): void;
  onPong(): void;
  /** The other side is leaving: gracefully, or at once with a reason. */
  onGoaway(reason?: Error): void;
}

export interface ReadingOptions {
  readonly role: 'client' | 'server';
  /** What the other side may do. */
  readonly settings: Pick<Settings, 'maxFrameSize' | 'maxHeaderListSize'>;
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
  readonly #checks = new FrameChecks();
  #prefaceLeft: number;
  /** Bytes received and not yet returned to the connection's window. */
  #received = 0;

  constructor({ role, settings, streams, output, sink }: ReadingOptions) {
    this.#streams = streams;
    this.#output = output;
    this.#sink = sink;
    this.#reader = new FrameReader(this, settings.maxFrameSize);
    this.#heads = new HeadReader(DEFAULT_SETTINGS.headerTableSize, settings.maxHeaderListSize);
    this.#prefaceLeft = role === 'server' ? PREFACE.length : 0;
  }

  /** @throws ConnectionError for malformed HTTP/2, and errors of faces */
  read(chunk: Buffer): void {
    const bytes = this.#prefaceLeft > 0 ? this.#readPreface(chunk) : chunk;
    if (bytes.length > 0) this.#reader.read(bytes);
    this.#streams.resets.check();
  }

  /** Reads nothing more, not even the rest of the current chunk. */
  stop(): void {
    this.#reader.stop();
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
    this.#checks.check(FrameType.DATA, flags, id, bytes.length);
    this.#heads.expect(FrameType.DATA, id);
    this.#output.floods.data(bytes.length + padding, flags);
    this.#received += bytes.length + padding;
    if (this.#received > CONNECTION_WINDOW / 2) {
      this.#output.frame(windowUpdateFrame(0, this.#received));
      this.#received = 0;
    }
    const stream = this.#streams.known(id, 'DATA');
    if (stream) stream.receiveData(bytes, padding, last && (flags & Flag.END_STREAM) !== 0);
    else if (last) this.#streams.late(id);
  }

  frame(type: number, flags: number, id: number, payload: Buffer): void {
    this.#checks.check(type, flags, id, payload.length);
    this.#heads.expect(type, id);
    this.#output.floods.came(type);
    switch (type) {
      case FrameType.HEADERS:
        this.#onHead(this.#heads.headers(id, flags, payload));
        break;
      case FrameType.CONTINUATION:
        this.#onHead(this.#heads.continuation(flags, payload));
        break;
      case FrameType.RST_STREAM:
        this.#streams.receiveReset(id, payload.readUInt32BE(0));
        break;
      case FrameType.SETTINGS:
        if (!(flags & Flag.ACK)) this.#onSettings(payload);
        break;
      case FrameType.PING:
        if (flags & Flag.ACK) this.#sink.onPong();
        else this.#sink.onPing(payload);
        break;
      case FrameType.GOAWAY:
        this.#onGoaway(payload);
        break;
      case FrameType.MARK:
        this.#onMark(id, payload);
        break;
      case FrameType.WINDOW_UPDATE:
        this.#onWindowUpdate(id, payload.readUInt32BE(0) & 0x7fffffff);
        break;
      default:
      // PRIORITY asks for what we do not do. Other types are unknown, and skipped (section 5.5).
    }
  }

  #onMark(id: number, payload: Buffer): void {
    const stream = this.#streams.known(id, 'MARK');
    if (stream) stream.receiveMark(payload);
    else this.#output.floods.late();
  }

  #onHead(head: ReceivedHead | undefined): void {
    if (head) this.#streams.receiveHead(head);
  }

  #onSettings(payload: Buffer): void {
    this.#streams.adopt(readSettings(payload));
    this.#sink.onSettings();
  }

  #onGoaway(payload: Buffer): void {
    const code = payload.readUInt32BE(4);
    if (code !== ErrorCode.NO_ERROR) {
      const text = payload.subarray(8).toString();
      this.#sink.onGoaway(new Error(`the other side closed the connection: ${codeName(code)} ${text}`.trim()));
      return;
    }
    this.#streams.refusedAfter(payload.readUInt32BE(0) & 0x7fffffff);
    this.#sink.onGoaway();
  }

  #onWindowUpdate(id: number, bytes: number): void {
    if (id === 0) this.#output.widen(bytes);
    else this.#streams.known(id, 'WINDOW_UPDATE')?.widen(bytes);
  }
}
