import { Duplex } from 'node:stream';
import { codeName, ErrorCode, StreamError } from '../codes.ts';
import { encodeHead, headOf, type OutgoingHead } from '../head.ts';
import type { Field } from '../section.ts';
import { pushCompact } from './compact.ts';
import type { HeadKind, StreamFace } from './face.ts';
import type { Http2Stream } from './stream.ts';

type Done = (error?: Error | null) => void;

/** Bytes that may wait here to be sent before the writer has to pause: two reads of a socket. */
const SEND_AHEAD = 128 * 1024;

/** A write of at least this length counts as bulk, in bytes. A shorter one does not wait for others. */
const BULK = 16 * 1024;

/** Pieces that are shorter than this on average are sent as one: each would be a write to the socket of its own. */
const SHORT_PIECE = 1024;

/** The event of each kind of section. */
const EVENTS = { informational: 'headers', response: 'response', trailers: 'trailers' } as const;

/**
 * A stream as a Duplex. Its two directions end independently; `destroy` and `close` reset it. Once both have ended, received bytes can
 * still be read to the end, even after the connection has ended.
 *
 * Events in addition to a Duplex's, at the client: `headers` (an informational head), `response` and `trailers`, each with the Head.
 */
export class DuplexStream extends Duplex implements StreamFace {
  readonly #stream: Http2Stream;
  /** Received bytes beyond what the reader wants now. */
  #held = 0;
  /** The write under way: its bytes, and its callback. */
  #writing = 0;
  #written: Done | undefined;
  #final: Done | undefined;

  constructor(stream: Http2Stream) {
    // Bytes count as read only once the reader has them, so the window bounds what is buffered.
    super({ readableHighWaterMark: 1, writableHighWaterMark: SEND_AHEAD });
    this.#stream = stream;
    stream.face = this;
  }

  get id(): number {
    return this.#stream.id;
  }

  /** Why it was reset, by either side. */
  get rstCode(): number {
    return this.#stream.code ?? ErrorCode.NO_ERROR;
  }

  get headersSent(): boolean {
    return this.#stream.answered;
  }

  /** Whether no further frame will arrive or leave: both sides have ended, or one has reset. */
  get wireClosed(): boolean {
    return this.#stream.closed;
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
    this.#held += bytes.length;
    if (pushCompact(this, bytes)) this.#consume();
  }

  onEnd(): void {
    this.push(null);
  }

  /** A bulk writer that has nothing left here is asked for more on the stream's turn. */
  onWritable(): void {
    if (!this.#written) this.#finish();
    else if (this.#writing >= BULK && this.writableLength === this.#writing && !this.writableEnded)
      this.#stream.awaitTurn(this);
    else this.refill();
  }

  refill(): void {
    this.#release();
  }

  onClose(code: number | undefined, reason: Error | undefined): void {
    if (code === undefined) return;
    if (reason || code !== ErrorCode.NO_ERROR || !this.#stream.complete) {
      this.destroy(reason ?? failure(code));
      return;
    }
    // The whole response has arrived, and the other side wants no more of the request (section 8.1). The response can still be read.
    this.#release();
    this.#finish();
    this.end();
  }

  // What Duplex asks for.

  override _read(): void {
    this.#consume();
  }

  override _write(chunk: Buffer, _encoding: string, done: Done): void {
    if (this.#begin(chunk.length, done)) this.#stream.write(chunk);
  }

  override _writev(writes: { chunk: Buffer }[], done: Done): void {
    const length = writes.reduce((sum, { chunk }) => sum + chunk.length, 0);
    if (!this.#begin(length, done)) return;
    const chunks = writes.map(({ chunk }) => chunk);
    if (length < SHORT_PIECE * chunks.length) this.#stream.write(Buffer.concat(chunks, length));
    else for (const chunk of chunks) this.#stream.write(chunk);
  }

  override _final(done: Done): void {
    this.#final = done;
    this.#stream.end();
    if (this.#stream.ended) this.#finish();
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#stream.reset(ErrorCode.CANCEL);
    this.#release(error ?? new Error('stream was closed'));
    this.#stream.release();
    done(error);
  }

  /** @returns whether there is something to send */
  #begin(length: number, done: Done): boolean {
    if (length === 0 || this.wireClosed) {
      done();
      return false;
    }
    this.#writing = length;
    this.#written = done;
    return true;
  }

  #release(error?: Error): void {
    const written = this.#written;
    this.#written = undefined;
    written?.(error);
  }

  #finish(): void {
    const final = this.#final;
    this.#final = undefined;
    final?.();
  }

  #consume(): void {
    const held = this.#held;
    if (held === 0) return;
    this.#held = 0;
    this.#stream.read(held);
  }
}

/** CANCEL is the normal way to abandon a stream. Its reader sees that the stream closed without an end. */
function failure(code: number): StreamError | undefined {
  if (code === ErrorCode.NO_ERROR || code === ErrorCode.CANCEL) return undefined;
  return new StreamError(code, `stream was reset with ${codeName(code)}`);
}
