import { Duplex } from 'node:stream';
import { pushCompact } from './compact.ts';
import { bufferSizes } from './memory.ts';

type Done = (error?: Error | null) => void;

/** A write of at least this length is bulk, in bytes. A writer of shorter ones never waits for its turn. */
const BULK_WRITE = 16 * 1024;

/** Pieces that are shorter than this on average are joined first. Otherwise each would be a write to the socket. */
const SHORT_PIECE = 1024;

/**
 * A Duplex over something that carries several streams in turn. It has one write under way at a time. Bytes count as taken once the
 * reader has them.
 */
export abstract class TurnDuplex extends Duplex {
  /** Received bytes that the reader has not got. */
  #held = 0;
  /** The length of the write under way, and its callback. */
  #writeBytes = 0;
  #writeDone: Done | undefined;
  #endDone: Done | undefined;

  constructor() {
    // Bytes count as read only once the reader has them, so the sender's window bounds what is buffered.
    super({ readableHighWaterMark: 1, writableHighWaterMark: bufferSizes.ahead });
  }

  /** Sends a piece of a write. */
  protected abstract send(piece: Buffer): void;
  /** Whether pieces have yet to leave. `sent` must be called once they have. */
  protected abstract get sending(): boolean;
  /** Sends the writer's end. `endSent` must be called once it has left. */
  protected abstract sendEnd(): void;
  /** Called when the reader has taken so many more bytes. */
  protected abstract taken(bytes: number): void;
  /** Asks for a call of `writeMore` when it is this stream's turn. */
  protected abstract awaitTurn(): void;

  /** Whether a write is under way. */
  protected get writing(): boolean {
    return this.#writeDone !== undefined;
  }

  /** Received bytes that the reader has not got. */
  protected get held(): number {
    return this.#held;
  }

  /** Passes bytes on to the reader. */
  protected received(bytes: Uint8Array): void {
    this.#held += bytes.length;
    if (pushCompact(this, bytes)) this.#reportTaken();
  }

  /** All pieces have left. A bulk writer with nothing left here writes more when it is the stream's turn. */
  protected sent(): void {
    if (this.#writeBytes >= BULK_WRITE && this.writableLength === this.#writeBytes && !this.writableEnded)
      this.awaitTurn();
    else this.writeMore();
  }

  /** Lets the writer write more. */
  writeMore(): void {
    this.completeWrite();
  }

  /** Calls back the write that is under way. */
  protected completeWrite(error?: Error): void {
    const done = this.#writeDone;
    this.#writeDone = undefined;
    done?.(error);
  }

  /** Fails the write that is under way, if there is one. @param text why, if there is no error */
  protected failWrite(error: Error | null, text: string): void {
    if (this.#writeDone) this.completeWrite(error ?? new Error(text));
  }

  /** The writer's end has left. */
  protected endSent(): void {
    const done = this.#endDone;
    this.#endDone = undefined;
    done?.();
  }

  override _read(): void {
    this.#reportTaken();
  }

  override _write(chunk: Buffer, _encoding: string, done: Done): void {
    this.#write([chunk], chunk.length, done);
  }

  override _writev(writes: { chunk: Buffer }[], done: Done): void {
    const chunks = writes.map(({ chunk }) => chunk);
    const length = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    this.#write(length < SHORT_PIECE * chunks.length ? [Buffer.concat(chunks, length)] : chunks, length, done);
  }

  override _final(done: Done): void {
    this.#endDone = done;
    this.sendEnd();
  }

  #write(pieces: readonly Buffer[], length: number, done: Done): void {
    if (length === 0) {
      done();
      return;
    }
    this.#writeBytes = length;
    this.#writeDone = done;
    for (const piece of pieces) this.send(piece);
    if (!this.sending) this.completeWrite();
  }

  #reportTaken(): void {
    const held = this.#held;
    if (held === 0) return;
    this.#held = 0;
    this.taken(held);
  }
}
