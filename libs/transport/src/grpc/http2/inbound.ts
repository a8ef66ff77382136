import {
  ConnectionError,
  DEFAULT_FRAME,
  DEFAULT_SETTINGS,
  ErrorCode,
  Flag,
  type FrameHandler,
  FrameReader,
  FrameType,
  type HeaderSection,
  HeaderSections,
  HpackDecoder,
  PREFACE,
  readSettings,
  type Settings,
} from '@isthmus/http2';
import type { Field } from './request.ts';

/** What a request's header fields may come to, in bytes. */
export const MAX_FIELDS = 64 * 1024;

/** What a peer says of the connection, by frames that are well-formed and allowed there. */
export interface ConnectionSink {
  settings(changes: Partial<Settings>): void;
  ping(payload: Buffer): void;
}

/** What a peer says of streams and windows, likewise. */
export interface StreamSink {
  /** @param ends the peer sends nothing more on the stream */
  headers(stream: number, fields: readonly Field[], ends: boolean): void;
  /** Bytes of a DATA frame came, which count for the windows with their padding. */
  data(stream: number, piece: Buffer, padding: number): void;
  dataEnds(stream: number): void;
  reset(stream: number, code: number): void;
  /** @param stream 0 for the connection */
  windowUpdate(stream: number, by: number): void;
}

/** What a peer's bytes mean: the preface, and frames, each looked at by itself (RFC 9113 sections 3.4 and 6). */
export class Inbound implements FrameHandler {
  readonly #connection: ConnectionSink;
  readonly #streams: StreamSink;
  readonly #reader = new FrameReader(this, DEFAULT_FRAME);
  readonly #sections = new HeaderSections(MAX_FIELDS);
  readonly #decoder = new HpackDecoder(DEFAULT_SETTINGS.headerTableSize, MAX_FIELDS);
  /** Bytes of the preface that came. */
  #preface = 0;
  #greeted = false;

  constructor(connection: ConnectionSink, streams: StreamSink) {
    this.#connection = connection;
    this.#streams = streams;
  }

  /** @throws ConnectionError, also from the sinks; nothing may be read behind it. */
  read(chunk: Buffer): void {
    this.#reader.read(this.#preface < PREFACE.length ? this.#readPreface(chunk) : chunk);
  }

  #readPreface(chunk: Buffer): Buffer {
    const length = Math.min(chunk.length, PREFACE.length - this.#preface);
    if (PREFACE.compare(chunk, 0, length, this.#preface, this.#preface + length) !== 0)
      throw broken('no HTTP/2 preface');
    this.#preface += length;
    return chunk.subarray(length);
  }

  data(stream: number, piece: Buffer, flags: number, last: boolean, padding: number): void {
    this.#checkOrder(FrameType.DATA, stream, flags);
    onStream('DATA', stream);
    this.#streams.data(stream, piece, padding);
    if (last && flags & Flag.END_STREAM) this.#streams.dataEnds(stream);
  }

  frame(type: number, flags: number, stream: number, payload: Buffer): void {
    this.#checkOrder(type, stream, flags);
    switch (type) {
      case FrameType.HEADERS:
        if (stream % 2 === 0) throw broken(`HEADERS on stream ${stream}`);
        this.#headers(this.#sections.headers(stream, flags, payload));
        break;
      case FrameType.CONTINUATION:
        this.#headers(this.#sections.continuation(flags, payload));
        break;
      case FrameType.PRIORITY:
        onStream('PRIORITY', stream);
        sized('PRIORITY', payload, 5);
        break;
      case FrameType.RST_STREAM:
        onStream('RST_STREAM', stream);
        sized('RST_STREAM', payload, 4);
        this.#streams.reset(stream, payload.readUInt32BE());
        break;
      case FrameType.SETTINGS:
        onConnection('SETTINGS', stream);
        this.#settings(flags, payload);
        break;
      case FrameType.PUSH_PROMISE:
        throw broken('PUSH_PROMISE of a client');
      case FrameType.PING:
        onConnection('PING', stream);
        sized('PING', payload, 8);
        if (!(flags & Flag.ACK)) this.#connection.ping(payload);
        break;
      case FrameType.GOAWAY:
        // Of a client it says nothing: it opens no more streams, and closes when it likes.
        onConnection('GOAWAY', stream);
        break;
      case FrameType.WINDOW_UPDATE:
        sized('WINDOW_UPDATE', payload, 4);
        this.#streams.windowUpdate(stream, payload.readUInt32BE() & 0x7fffffff);
        break;
      default:
      // Of other types nobody knows anything; they are passed over (section 5.5).
    }
  }

  #headers(section: HeaderSection | undefined): void {
    // Decoded whatever becomes of it: the tables of both ends must stay alike.
    if (section) this.#streams.headers(section.stream, this.#decoder.decode(section.block), section.ends);
  }

  #settings(flags: number, payload: Buffer): void {
    if (flags & Flag.ACK) {
      sized('the answer to SETTINGS', payload, 0);
      return;
    }
    this.#greeted = true;
    this.#connection.settings(readSettings(payload));
  }

  #checkOrder(type: number, stream: number, flags: number): void {
    if (!this.#greeted && (type !== FrameType.SETTINGS || flags & Flag.ACK)) throw broken('SETTINGS must come first');
    this.#sections.expect(type, stream);
  }
}

function broken(message: string): ConnectionError {
  return new ConnectionError(ErrorCode.PROTOCOL_ERROR, message);
}

function onConnection(what: string, stream: number): void {
  if (stream !== 0) throw broken(`${what} on a stream`);
}

function onStream(what: string, stream: number): void {
  if (stream === 0) throw broken(`${what} on no stream`);
}

function sized(what: string, { length }: Buffer, size: number): void {
  if (length !== size) throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, `${what} of ${length} bytes`);
}
