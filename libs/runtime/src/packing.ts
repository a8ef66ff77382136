import { compact, pins } from './compact.ts';

/** Shorter pieces are put together: each alone would cost more than it holds. */
const SMALL_PIECE = 4 * 1024;

/** What they are put together in: twice as much for each block in a row, up to the last. */
const FIRST_BLOCK = 256;
const LAST_BLOCK = 16 * 1024;

/**
 * Makes of received pieces what can be kept at its own cost: small ones lie one behind the other in blocks, and none keeps the read that it
 * came in. Make another one once nothing is kept.
 */
export class Packing {
  /** What the last piece lies in if more fits behind it, and how much of that is used. */
  #block: Buffer | undefined;
  #used = 0;

  /** @param last what is kept last @returns that with the piece behind it; undefined if the piece begins another one */
  extend(last: Uint8Array, piece: Uint8Array): Uint8Array | undefined {
    const from = this.#used;
    const used = from + piece.length;
    if (!this.#block || used > this.#block.length || !isPacked(piece)) return undefined;
    this.#block.set(piece, from);
    this.#used = used;
    return this.#block.subarray(from - last.length, used);
  }

  /** @returns what to keep of a piece that `extend` did not take */
  begin(piece: Uint8Array): Uint8Array {
    if (!isPacked(piece)) {
      this.#block = undefined;
      return compact(piece);
    }
    const next = this.#block ? 2 * this.#block.length : FIRST_BLOCK;
    const size = Math.max(piece.length, Math.min(LAST_BLOCK, next));
    // Only the first may lie in a pool with others: it is quick to make, and so one pool is kept at most.
    this.#block = size > FIRST_BLOCK ? Buffer.allocUnsafeSlow(size) : Buffer.allocUnsafe(size);
    this.#block.set(piece);
    this.#used = piece.length;
    return this.#block.subarray(0, piece.length);
  }
}

function isPacked(piece: Uint8Array): boolean {
  return piece.length < SMALL_PIECE || (piece.length < LAST_BLOCK && pins(piece));
}
