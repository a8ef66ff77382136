import type { Output } from '../connection/output.ts';

/** What was written to a stream and waits to be sent. */
export class SendQueue {
  #pieces: Buffer[] = [];
  /** Bytes of the first piece that have been sent. */
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
  }

  drop(): void {
    this.#pieces = [];
    this.#length = 0;
  }

  #sendPart(output: Output, limit: number): number {
    const piece = this.#pieces[0] as Buffer;
    const length = Math.min(limit, piece.length - this.#offset);
    output.add(length === piece.length ? piece : piece.subarray(this.#offset, this.#offset + length));
    this.#offset += length;
    if (this.#offset === piece.length) {
      this.#pieces.shift();
      this.#offset = 0;
    }
    return length;
  }
}
