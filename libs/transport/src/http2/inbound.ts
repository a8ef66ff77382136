import { CODE, ConnectionError, FLAG, type FrameHead, FrameReader, type FrameSink, TYPE } from './frames.ts';
import { HeaderBlock } from './header-block.ts';
import { type PeerSettings, readSettings } from './settings.ts';

/** What a peer says by frames that are well-formed, and allowed on a connection or on a stream. */
export interface InboundSink {
  settings(settings: PeerSettings): void;
  ping(payload: Buffer): void;
  /** @param ends the peer sends nothing more on the stream */
  headers(stream: number, section: Buffer, ends: boolean): void;
  /** A DATA frame begins: so many bytes count for the windows, so many of them are padding. */
  dataBegins(stream: number, length: number, padding: number): void;
  data(stream: number, piece: Buffer): void;
  dataEnds(stream: number): void;
  reset(stream: number, code: number): void;
  /** @param stream 0 for the connection */
  windowUpdate(stream: number, by: number): void;
}

/** What frames mean, each looked at by itself (RFC 9113 section 6). */
export class Inbound implements FrameSink {
  readonly #sink: InboundSink;
  readonly #mostFields: number;
  readonly #reader = new FrameReader(this);
  #greeted = false;
  /** A header section whose end has not come: nothing else may come before. */
  #block: HeaderBlock | undefined;

  /** @param mostFields what a header section may come to, in bytes */
  constructor(sink: InboundSink, mostFields: number) {
    this.#sink = sink;
    this.#mostFields = mostFields;
  }

  /** @throws ConnectionError, also from the sink; nothing may be read behind it. */
  read(chunk: Buffer): void {
    this.#reader.read(chunk);
  }

  frame(head: FrameHead, payload: Buffer): void {
    this.#checkOrder(head);
    switch (head.type) {
      case TYPE.DATA:
        this.#paddedData(head, payload);
        break;
      case TYPE.HEADERS:
        this.#headers(new HeaderBlock(head, payload));
        break;
      case TYPE.CONTINUATION:
        if (!this.#block) throw broken('CONTINUATION without HEADERS');
        this.#headers(this.#block.continue(head, payload, this.#mostFields));
        break;
      case TYPE.PRIORITY:
        onStream(head, 5);
        break;
      case TYPE.RST_STREAM:
        onStream(head, 4);
        this.#sink.reset(head.stream, payload.readUInt32BE());
        break;
      case TYPE.SETTINGS:
        this.#settings(head, payload);
        break;
      case TYPE.PUSH_PROMISE:
        throw broken('PUSH_PROMISE of a client');
      case TYPE.PING:
        onConnection(head);
        sized(head, 8);
        if (!(head.flags & FLAG.ACK)) this.#sink.ping(payload);
        break;
      case TYPE.GOAWAY:
        // Of a client it says nothing: it opens no more streams, and closes when it likes.
        onConnection(head);
        break;
      case TYPE.WINDOW_UPDATE:
        sized(head, 4);
        this.#sink.windowUpdate(head.stream, payload.readUInt32BE() & 0x7fffffff);
        break;
      default:
      // Of other types nobody knows anything; they are passed over (section 5.5).
    }
  }

  dataBegins(head: FrameHead): void {
    this.#checkOrder(head);
    onStream(head);
    this.#sink.dataBegins(head.stream, head.length, 0);
  }

  data({ stream }: FrameHead, piece: Buffer): void {
    this.#sink.data(stream, piece);
  }

  dataEnds({ stream, flags }: FrameHead): void {
    if (flags & FLAG.END_STREAM) this.#sink.dataEnds(stream);
  }

  #paddedData(head: FrameHead, payload: Buffer): void {
    onStream(head);
    const padding = payload[0];
    if (padding === undefined || padding >= payload.length) throw broken('padding longer than its frame');
    this.#sink.dataBegins(head.stream, head.length, padding + 1);
    this.#sink.data(head.stream, payload.subarray(1, payload.length - padding));
    this.dataEnds(head);
  }

  #headers(block: HeaderBlock): void {
    this.#block = block.whole ? undefined : block;
    if (block.whole) this.#sink.headers(block.id, block.bytes, block.ends);
  }

  #settings(head: FrameHead, payload: Buffer): void {
    onConnection(head);
    if (head.flags & FLAG.ACK) {
      sized(head, 0);
      return;
    }
    this.#greeted = true;
    this.#sink.settings(readSettings(payload));
  }

  #checkOrder({ type, flags }: FrameHead): void {
    if (!this.#greeted && (type !== TYPE.SETTINGS || flags & FLAG.ACK)) throw broken('SETTINGS must come first');
    if (this.#block && type !== TYPE.CONTINUATION) throw broken('a header section that does not end');
  }
}

function broken(message: string): ConnectionError {
  return new ConnectionError(CODE.PROTOCOL_ERROR, message);
}

function onConnection({ stream, type }: FrameHead): void {
  if (stream !== 0) throw broken(`a frame of type ${type} on a stream`);
}

function onStream(head: FrameHead, size = head.length): void {
  if (head.stream === 0) throw broken(`a frame of type ${head.type} on no stream`);
  sized(head, size);
}

function sized({ length, type }: FrameHead, size: number): void {
  if (length !== size) throw new ConnectionError(CODE.FRAME_SIZE_ERROR, `a frame of type ${type} with ${length} bytes`);
}
