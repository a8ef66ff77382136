import { Duplex } from 'node:stream';
import { bufferSizes, destroyOnceRead, pushCompact, RUNTIME } from '@isthmus/runtime';
import { WIRE } from '../defaults.ts';
import { codeName, ErrorCode, StreamError } from './frames.ts';
import { encodeHead, type Field, headOf, type OutgoingHead } from './heads.ts';
import type { HeadKind, Http2Stream, StreamHandler } from './stream.ts';

/** The event of each kind of section. */
const EVENTS = { informational: 'headers', response: 'response', trailers: 'trailers' } as const;

type Done = (error?: Error | null) => void;

/**
 * A stream as a Duplex, with one write under way at a time. Its two directions end independently; `destroy` and `close` reset it. Once both have ended, received bytes can
 * still be read to the end, even after the connection has ended.
 *
 * Events in addition to a Duplex's, at the client: `headers` (an informational head), `response` and `trailers`, each with the Head.
 */
export class DuplexStream extends Duplex implements StreamHandler {
  readonly #stream: Http2Stream;
  /** Received bytes that the reader has not got. */
  #unread = 0;
  /** The length of the write under way, and its callback. */
  #writeBytes = 0;
  #writeDone: Done | undefined;
  #endDone: Done | undefined;

  constructor(stream: Http2Stream) {
    // Bytes count as read only once the reader has them, so the sender's window bounds what is buffered.
    super({ readableHighWaterMark: 1, writableHighWaterMark: bufferSizes.ahead });
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
    this.#unread += bytes.length;
    if (pushCompact(this, bytes)) this.#reportTaken();
  }

  onEnd(): void {
    this.push(null);
  }

  onWritable(): void {
    const { bulkWriteBytes } = RUNTIME;
    if (!this.#writeDone) this.#endSent();
    // A bulk writer with nothing left here writes more when it is the stream's turn.
    else if (this.#writeBytes >= bulkWriteBytes && this.writableLength === this.#writeBytes && !this.writableEnded)
      this.#stream.awaitTurn(this);
    else this.writeMore();
  }

  /** Lets the writer write more. */
  writeMore(error?: Error): void {
    const done = this.#writeDone;
    this.#writeDone = undefined;
    done?.(error);
  }

  onClose(code: number | undefined, reason: Error | undefined): void {
    if (code === undefined) return;
    if (reason || code !== ErrorCode.NO_ERROR || !this.#stream.complete) {
      // What arrived before the other side abandoned the stream can still be read.
      if (!reason && code === ErrorCode.CANCEL && this.#unread > 0) {
        this.writeMore();
        destroyOnceRead(this);
      } else this.destroy(reason ?? failureOf(code));
      return;
    }
    // The whole response has arrived, and the other side wants no more of the request (section 8.1). The response can still be read.
    this.writeMore();
    this.#endSent();
    this.end();
  }

  // What its Duplex asks for.

  override _read(): void {
    this.#reportTaken();
  }

  override _write(chunk: Buffer, _encoding: string, done: Done): void {
    this.#write([chunk], chunk.length, done);
  }

  override _writev(writes: { chunk: Buffer }[], done: Done): void {
    const chunks = writes.map(({ chunk }) => chunk);
    const length = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    const short = length < WIRE.shortPieceBytes * chunks.length;
    this.#write(short ? [Buffer.concat(chunks, length)] : chunks, length, done);
  }

  override _final(done: Done): void {
    this.#endDone = done;
    this.#stream.end();
    if (this.#stream.localEnded) this.#endSent();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#stream.reset(ErrorCode.CANCEL);
    this.#stream.release();
    if (this.#writeDone) this.writeMore(error ?? new Error('stream was closed'));
    done(error);
  }

  #write(pieces: readonly Buffer[], length: number, done: Done): void {
    if (length === 0) {
      done();
      return;
    }
    this.#writeBytes = length;
    this.#writeDone = done;
    for (const piece of pieces) this.#stream.write(piece);
    if (this.#stream.closed) this.writeMore();
  }

  /** The writer's end has left. */
  #endSent(): void {
    const done = this.#endDone;
    this.#endDone = undefined;
    done?.();
  }

  #reportTaken(): void {
    const unread = this.#unread;
    if (unread === 0) return;
    this.#unread = 0;
    this.#stream.consume(unread);
  }
}

/** The failure that a reset is. CANCEL is the normal way to abandon a stream: its reader sees that the stream closed without an end. */
export function failureOf(code: number): StreamError | undefined {
  if (code === ErrorCode.NO_ERROR || code === ErrorCode.CANCEL) return undefined;
  return new StreamError(code, `stream was reset with ${codeName(code)}`);
}
