import { compact, pins } from '@isthmus/http2';

/** Shorter pieces are put together: each alone would cost more than it holds. */
const SMALL = 4 * 1024;
const BLOCK = 16 * 1024;

/** Received bytes that wait for their reader, in order. */
export class Waiting {
  readonly #pieces: Uint8Array[] = [];
  /** The last piece, as long as more fits behind its data. */
  #block: Buffer | undefined;
  #used = 0;
  #length = 0;

  /** In bytes. */
  get length(): number {
    return this.#length;
  }

  push(piece: Uint8Array): void {
    this.#length += piece.length;
    if (piece.length < SMALL || (piece.length < BLOCK && pins(piece))) this.#append(piece);
    else {
      this.#block = undefined;
      this.#pieces.push(compact(piece));
    }
  }

  /** Returns the next piece, or undefined if nothing waits. */
  shift(): Uint8Array | undefined {
    const piece = this.#pieces.shift();
    if (this.#pieces.length === 0) this.#block = undefined;
    this.#length -= piece?.length ?? 0;
    return piece;
  }

  clear(): void {
    this.#pieces.length = 0;
    this.#block = undefined;
    this.#length = 0;
  }

  #append(piece: Uint8Array): void {
    let block = this.#block;
    if (block && this.#used + piece.length <= block.length) this.#pieces.pop();
    else {
      block = Buffer.allocUnsafeSlow(BLOCK);
      this.#block = block;
      this.#used = 0;
    }
    block.set(piece, this.#used);
    this.#used += piece.length;
    this.#pieces.push(block.subarray(0, this.#used));
  }
}
