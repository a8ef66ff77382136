import type { Output } from '../connection/output.ts';

/** Pieces that were sent are dropped together, once there are at least this many of them: to shift each out costs a copy of the rest. */
const DROPPED_AT_ONCE = 64;

/** What was written to a stream and waits to be sent. */
export class SendQueue {
  #pieces: Buffer[] = [];
  /** Pieces at the front that have been sent. */
  #sent = 0;
  /** Bytes of the first piece in the queue that have been sent. */
  #offset = 0;
  #length = 0;

  /** In bytes. */
  get length(): number {
    return this.#length;
  }

  push(piece: Buffer): void {
    this.#pieces.push(piece);
    this.#length += piece.length;
  }

  /** Moves its first bytes to the output. */
  send(output: Output, length: number): void {
    this.#length -= length;
    for (let left = length; left > 0; ) left -= this.#sendPart(output, left);
    if (this.#length === 0) this.drop();
    else if (this.#sent >= Math.max(DROPPED_AT_ONCE, this.#pieces.length / 2)) {
      this.#pieces = this.#pieces.slice(this.#sent);
      this.#sent = 0;
    }
  }

  drop(): void {
    this.#pieces = [];
    this.#sent = 0;
    this.#offset = 0;
    this.#length = 0;
  }

  #sendPart(output: Output, limit: number): number {
    const piece = this.#pieces[this.#sent] as Buffer;
    const length = Math.min(limit, piece.length - this.#offset);
    output.add(length === piece.length ? piece : piece.subarray(this.#offset, this.#offset + length));
    this.#offset += length;
    if (this.#offset === piece.length) {
      this.#sent++;
      this.#offset = 0;
    }
    return length;
  }
}
