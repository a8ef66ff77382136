import { ConnectionError, codeName, ErrorCode, Flag, FrameType, MAX_WINDOW } from './codes.ts';
import { FrameChecks } from './frame-checks.ts';
import { type FrameHandler, FrameReader } from './frame-reader.ts';
import { PREFACE, pingFrame, settingsAck, windowUpdateFrame } from './frames.ts';
import { type Head, HeadReader, headOf, type ReceivedHead } from './head.ts';
import type { Pings } from './pings.ts';
import type { Sending } from './sending.ts';
import { DEFAULT_SETTINGS, readSettings, type Settings } from './settings.ts';
import type { Http2Stream } from './stream.ts';
import type { Streams } from './streams.ts';

/** The connection's window. The streams' own windows bound all streams together. */
export const CONNECTION_WINDOW = MAX_WINDOW;

export interface ReceivingOptions {
  readonly role: 'client' | 'server';
  /** What the other side may do. */
  readonly settings: Pick<Settings, 'maxFrameSize' | 'maxHeaderListSize'>;
  readonly streams: Streams;
  readonly sending: Sending;
  readonly pings: Pings;
  /** The other side opened a stream. */
  readonly opened: (stream: Http2Stream, head: Head) => void;
  /** Called when the other side leaves: gracefully, or at once with a reason. */
  readonly goaway: (reason?: Error) => void;
}

/** The receiving side of a connection: reads the other side's frames and applies them to streams, windows and PINGs. */
export class Receiving implements FrameHandler {
  readonly #options: ReceivingOptions;
  readonly #streams: Streams;
  readonly #sending: Sending;
  readonly #reader: FrameReader;
  readonly #heads: HeadReader;
  readonly #checks = new FrameChecks();
  #prefaceLeft: number;
  /** Bytes received and not yet returned to the connection's window. */
  #received = 0;

  constructor(options: ReceivingOptions) {
    const { role, settings, streams, sending } = options;
    this.#options = options;
    this.#streams = streams;
    this.#sending = sending;
    this.#reader = new FrameReader(this, settings.maxFrameSize);
    this.#heads = new HeadReader(DEFAULT_SETTINGS.headerTableSize, settings.maxHeaderListSize);
    this.#prefaceLeft = role === 'server' ? PREFACE.length : 0;
  }

  /** @throws ConnectionError for malformed HTTP/2, and errors of listeners */
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
    this.#sending.floods.data(bytes.length + padding, flags);
    this.#received += bytes.length + padding;
    if (this.#received > CONNECTION_WINDOW / 2) {
      this.#sending.frame(windowUpdateFrame(0, this.#received));
      this.#received = 0;
    }
    const ends = last && (flags & Flag.END_STREAM) !== 0;
    const stream = this.#streams.known(id, 'DATA');
    if (stream) stream.receiveData(bytes, padding, ends);
    else if (last) this.#streams.late(id);
  }

  frame(type: number, flags: number, id: number, payload: Buffer): void {
    this.#checks.check(type, flags, id, payload.length);
    this.#heads.expect(type, id);
    this.#sending.floods.came(type);
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
        this.#onSettings(flags, payload);
        break;
      case FrameType.PING:
        this.#onPing(flags, payload);
        break;
      case FrameType.GOAWAY:
        this.#onGoaway(payload);
        break;
      case FrameType.WINDOW_UPDATE:
        this.#onWindowUpdate(id, payload);
        break;
      default:
      // Of other types nobody knows anything; they are passed over (section 5.5).
    }
  }

  #onHead(received: ReceivedHead | undefined): void {
    if (!received) return;
    const { stream: id, fields, ends } = received;
    if (!this.#streams.begins(id)) {
      const stream = this.#streams.known(id, 'HEADERS');
      if (stream) stream.receiveSection(fields, ends);
      else this.#streams.lateSection(id, fields);
      return;
    }
    const stream = this.#streams.accept(id, fields);
    if (!stream) return;
    this.#options.opened(stream, headOf(fields));
    if (ends) stream.receiveEnd();
  }

  #onSettings(flags: number, payload: Buffer): void {
    if (flags & Flag.ACK) return;
    this.#streams.adopt(readSettings(payload));
    this.#sending.frame(settingsAck());
  }

  #onPing(flags: number, payload: Buffer): void {
    if (flags & Flag.ACK) this.#options.pings.answered();
    else this.#sending.frame(pingFrame(payload, true));
  }

  #onGoaway(payload: Buffer): void {
    const code = payload.readUInt32BE(4);
    if (code !== ErrorCode.NO_ERROR) {
      const text = payload.subarray(8).toString();
      this.#options.goaway(new Error(`the other side ended it: ${codeName(code)} ${text}`.trim()));
      return;
    }
    this.#streams.refusedAfter(payload.readUInt32BE(0) & 0x7fffffff);
    this.#options.goaway();
  }

  #onWindowUpdate(id: number, payload: Buffer): void {
    const bytes = payload.readUInt32BE(0) & 0x7fffffff;
    if (id !== 0) {
      this.#streams.known(id, 'WINDOW_UPDATE')?.allow(bytes);
      return;
    }
    if (bytes === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'WINDOW_UPDATE of nothing');
    if (this.#sending.window + bytes > MAX_WINDOW)
      throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'a window beyond 2^31 - 1');
    this.#sending.allow(bytes);
  }
}
