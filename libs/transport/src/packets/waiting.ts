import { compact, pins } from '@isthmus/http2';

/** Pieces of fewer bytes are put together: each would cost more than it holds. */
const SMALL = 4 * 1024;
const BLOCK = 16 * 1024;

/** Bytes that came and wait for their reader, in order. */
export class Waiting {
  readonly #pieces: Uint8Array[] = [];
  /** The last piece, while more fits behind what is in it. */
  #block: Buffer | undefined;
  #used = 0;
  #length = 0;

  /** Bytes. */
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

  /** @returns the next piece; undefined when nothing waits */
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
