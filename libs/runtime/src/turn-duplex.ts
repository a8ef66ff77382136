import { Duplex } from 'node:stream';
import { pushCompact } from './compact.ts';

type Done = (error?: Error | null) => void;

/** Bytes that may wait here to be sent before the writer has to pause: two reads of a socket. */
const SEND_AHEAD = 128 * 1024;

/** A write of at least this length counts as bulk, in bytes. A shorter one does not wait for others. */
const BULK = 16 * 1024;

/** Pieces that are shorter than this on average are sent as one: each would be a write to the socket of its own. */
const SHORT_PIECE = 1024;

/**
 * A Duplex over something that carries several streams in turn: one write is under way at a time, and bytes count as read once the reader
 * has them.
 */
export abstract class TurnDuplex extends Duplex {
  /** Received bytes that the reader has not got. */
  #held = 0;
  /** The write under way: its bytes, and its callback. */
  #writing = 0;
  #written: Done | undefined;
  #final: Done | undefined;

  constructor() {
    // Bytes count as read only once the reader has them, so the sender's window bounds what is buffered.
    super({ readableHighWaterMark: 1, writableHighWaterMark: SEND_AHEAD });
  }

  protected abstract send(piece: Buffer): void;
  /** Whether what was sent has still to leave, so that `wrote` follows. */
  protected abstract get sending(): boolean;
  /** The writer has ended. `finished` follows once that has been said. */
  protected abstract sendEnd(): void;
  /** The reader has got so many bytes. */
  protected abstract taken(bytes: number): void;
  /** Has `refill` called when it is this stream's turn. */
  protected abstract awaitTurn(): void;

  /** Whether a write is under way. */
  protected get writing(): boolean {
    return this.#written !== undefined;
  }

  /** Received bytes that the reader has not got. */
  protected get held(): number {
    return this.#held;
  }

  protected received(bytes: Uint8Array): void {
    this.#held += bytes.length;
    if (pushCompact(this, bytes)) this.#take();
  }

  /** What was written has left. A bulk writer that has nothing left here is asked for more on the stream's turn. */
  protected wrote(): void {
    if (this.#writing >= BULK && this.writableLength === this.#writing && !this.writableEnded) this.awaitTurn();
    else this.refill();
  }

  /** Asks the writer for more. */
  refill(): void {
    this.settle();
  }

  /** Ends the write that is under way. */
  protected settle(error?: Error): void {
    const written = this.#written;
    this.#written = undefined;
    written?.(error);
  }

  /** Fails the write that is under way, if there is one. @param text why, if no error says it */
  protected abandon(error: Error | null, text: string): void {
    if (this.#written) this.settle(error ?? new Error(text));
  }

  protected finished(): void {
    const final = this.#final;
    this.#final = undefined;
    final?.();
  }

  override _read(): void {
    this.#take();
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
    this.#final = done;
    this.sendEnd();
  }

  #write(pieces: readonly Buffer[], length: number, done: Done): void {
    if (length === 0) {
      done();
      return;
    }
    this.#writing = length;
    this.#written = done;
    for (const piece of pieces) this.send(piece);
    if (!this.sending) this.settle();
  }

  #take(): void {
    const held = this.#held;
    if (held === 0) return;
    this.#held = 0;
    this.taken(held);
  }
}
