import { compact, destroyOnceRead, MultiplexedDuplex } from '@isthmus/runtime';
import { codeName, ErrorCode, StreamError } from './frames.ts';
import { encodeHead, type Field, type Head, headOf, type OutgoingHead } from './heads.ts';
import type { HeadKind, Http2Stream, StreamHandler } from './stream.ts';

/** The event of each kind of section. */
const EVENTS = { informational: 'headers', response: 'response', trailers: 'trailers' } as const;

/**
 * A stream as a Duplex. Its two directions end independently; `destroy` and `close` reset it. Once both have ended, received bytes can
 * still be read to the end, even after the connection has ended.
 *
 * Events in addition to a Duplex's, at the client: `headers` (an informational head), `response` and `trailers`, each with the Head.
 */
export class DuplexStream extends MultiplexedDuplex implements StreamHandler {
  readonly #stream: Http2Stream;

  constructor(stream: Http2Stream) {
    super();
    this.#stream = stream;
    stream.handler = this;
  }

  get id(): number {
    return this.#stream.id;
  }

  /** Why it was reset, by either side. */
  get rstCode(): number {
    return this.#stream.code ?? ErrorCode.NO_ERROR;
  }

  /** The serving side's answer. */
  respond(head: OutgoingHead, { endStream = false } = {}): void {
    this.#stream.answer(encodeHead(head), endStream);
    if (endStream) this.end();
  }

  /** An informational head, before the answer. */
  additionalHeaders(head: OutgoingHead): void {
    this.#stream.headers(encodeHead(head));
  }

  /** Ends both directions at once: nothing more is sent, unread bytes are lost, and the other side gets a reset unless it has ended. */
  close(code: number = ErrorCode.CANCEL): void {
    if (this.destroyed) return;
    this.#stream.reset(code);
    this.destroy();
  }

  // What the stream calls.

  onHeaders(fields: readonly Field[], kind: HeadKind): void {
    this.emit(EVENTS[kind], headOf(fields));
  }

  onData(bytes: Buffer): void {
    this.received(bytes);
  }

  onEnd(): void {
    this.push(null);
  }

  onWritable(): void {
    if (this.writing) this.sent();
    else this.endSent();
  }

  onClose(code: number | undefined, reason: Error | undefined): void {
    if (code === undefined) return;
    if (reason || code !== ErrorCode.NO_ERROR || !this.#stream.complete) {
      // What arrived before the other side abandoned the stream can still be read.
      if (!reason && code === ErrorCode.CANCEL && this.unread > 0) this.#abandoned();
      else this.destroy(reason ?? failureOf(code));
      return;
    }
    // The whole response has arrived, and the other side wants no more of the request (section 8.1). The response can still be read.
    this.completeWrite();
    this.endSent();
    this.end();
  }

  #abandoned(): void {
    this.completeWrite();
    destroyOnceRead(this);
  }

  // What its Duplex asks for.

  protected override send(piece: Buffer): void {
    this.#stream.write(piece);
  }

  protected override get sending(): boolean {
    return !this.#stream.closed;
  }

  protected override sendEnd(): void {
    this.#stream.end();
    if (this.#stream.localEnded) this.endSent();
  }

  protected override taken(bytes: number): void {
    this.#stream.consume(bytes);
  }

  protected override awaitTurn(): void {
    this.#stream.awaitTurn(this);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#stream.reset(ErrorCode.CANCEL);
    this.#stream.release();
    this.failWrite(error, 'stream was closed');
    done(error);
  }
}

/** The failure that a reset is. CANCEL is the normal way to abandon a stream: its reader sees that the stream closed without an end. */
export function failureOf(code: number): StreamError | undefined {
  if (code === ErrorCode.NO_ERROR || code === ErrorCode.CANCEL) return undefined;
  return new StreamError(code, `stream was reset with ${codeName(code)}`);
}

interface PendingEvents {
  readonly headed?: (head: Head, kind: HeadKind) => void;
  /** Both sides have ended, or one has reset the stream. */
  readonly closed: (code: number | undefined) => void;
}

/** The handler of a stream until its use is known. It holds what arrives, within the stream's window. */
export class PendingStream implements StreamHandler {
  readonly stream: Http2Stream;
  readonly #events: PendingEvents;
  #early: Buffer[] | undefined;
  #mark: Buffer | undefined;

  constructor(stream: Http2Stream, events: PendingEvents) {
    this.stream = stream;
    this.#events = events;
    stream.handler = this;
  }

  /** Gives the stream to another handler, with everything that has arrived. */
  giveTo(handler: StreamHandler): void {
    const { stream } = this;
    stream.handler = handler;
    for (const bytes of this.#early ?? []) handler.onData(bytes);
    if (this.#mark) handler.onMark?.(this.#mark);
    if (stream.complete) handler.onEnd();
    if (stream.closed) handler.onClose(stream.code, stream.reason);
  }

  asDuplex(): DuplexStream {
    const duplex = new DuplexStream(this.stream);
    this.giveTo(duplex);
    return duplex;
  }

  onHeaders(fields: readonly Field[], kind: HeadKind): void {
    this.#events.headed?.(headOf(fields), kind);
  }

  onData(bytes: Buffer): void {
    this.#early ??= [];
    this.#early.push(compact(bytes) as Buffer);
  }

  onMark(payload: Buffer): void {
    // A copy, because the payload is valid only now. The last one is enough: a later mark says all that an earlier one did.
    this.#mark = Buffer.from(payload);
  }

  onEnd(): void {}

  onWritable(): void {}

  onClose(code: number | undefined): void {
    this.stream.release();
    this.#events.closed(code);
  }
}
