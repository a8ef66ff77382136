import {
  ConnectionError,
  DEFAULT_FRAME,
  DEFAULT_SETTINGS,
  ErrorCode,
  type Field,
  Flag,
  type FloodGuard,
  FrameChecks,
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
  section(stream: number, fields: readonly Field[], ends: boolean): void;
  /** Bytes of a DATA frame came, which count for the windows with their padding. */
  data(stream: number, piece: Buffer, padding: number): void;
  /** A DATA frame is over. @param ends the peer sends nothing more on the stream */
  dataFrame(stream: number, ends: boolean): void;
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
  readonly #checks = new FrameChecks();
  readonly #floods: FloodGuard;
  /** Bytes of the preface that came. */
  #preface = 0;

  constructor(connection: ConnectionSink, streams: StreamSink, floods: FloodGuard) {
    this.#connection = connection;
    this.#streams = streams;
    this.#floods = floods;
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
    this.#checks.check(FrameType.DATA, flags, stream, piece.length);
    this.#sections.expect(FrameType.DATA, stream);
    this.#floods.data(piece.length + padding, flags);
    this.#streams.data(stream, piece, padding);
    if (last) this.#streams.dataFrame(stream, (flags & Flag.END_STREAM) !== 0);
  }

  frame(type: number, flags: number, stream: number, payload: Buffer): void {
    this.#checks.check(type, flags, stream, payload.length);
    this.#sections.expect(type, stream);
    this.#floods.came(type);
    switch (type) {
      case FrameType.HEADERS:
        this.#section(this.#sections.headers(stream, flags, payload));
        break;
      case FrameType.CONTINUATION:
        this.#section(this.#sections.continuation(flags, payload));
        break;
      case FrameType.RST_STREAM:
        this.#streams.reset(stream, payload.readUInt32BE());
        break;
      case FrameType.SETTINGS:
        if (!(flags & Flag.ACK)) this.#connection.settings(readSettings(payload));
        break;
      case FrameType.PING:
        if (!(flags & Flag.ACK)) this.#connection.ping(payload);
        break;
      case FrameType.WINDOW_UPDATE:
        this.#streams.windowUpdate(stream, payload.readUInt32BE() & 0x7fffffff);
        break;
      default:
      // PRIORITY asks for what we do not do. Of a client GOAWAY says nothing: it opens no more streams, and closes when it likes.
    }
  }

  #section(section: HeaderSection | undefined): void {
    // Decoded whatever becomes of it: the tables of both ends must stay alike.
    if (section) this.#streams.section(section.stream, this.#decoder.decode(section.block), section.ends);
  }
}

function broken(message: string): ConnectionError {
  return new ConnectionError(ErrorCode.PROTOCOL_ERROR, message);
}
