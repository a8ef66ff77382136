import type { Readable } from 'node:stream';
import { Queue } from './collections.ts';
import { RUNTIME } from './defaults.ts';
import { memory } from './resources.ts';

/** Whether a piece keeps much more memory than it needs: a socket's read has many frames in it, and each is a view of that. */
function pins(piece: Uint8Array): boolean {
  return piece.length * RUNTIME.pinnedParts < piece.buffer.byteLength;
}

/** The same bytes, to be kept. */
export function compact(piece: Uint8Array): Uint8Array {
  if (!pins(piece)) return piece;
  memory.filled(piece.length);
  return Buffer.from(piece);
}

/**
 * Hands a stream what came for its reader. What the reader does not take at once is kept, and then does not keep the read that it came in.
 *
 * @returns whether the reader wants more
 */
export function pushCompact(stream: Readable, piece: Uint8Array): boolean {
  const taken = stream.readableFlowing === true && stream.readableLength === 0;
  return stream.push(taken ? piece : compact(piece));
}

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
    const next = this.#block ? 2 * this.#block.length : RUNTIME.firstBlockBytes;
    const size = Math.max(piece.length, Math.min(RUNTIME.lastBlockBytes, next));
    // Only the first may lie in a pool with others: it is quick to make, and so one pool is kept at most.
    this.#block = size > RUNTIME.firstBlockBytes ? Buffer.allocUnsafeSlow(size) : Buffer.allocUnsafe(size);
    memory.filled(size);
    this.#block.set(piece);
    this.#used = piece.length;
    return this.#block.subarray(0, piece.length);
  }
}

function isPacked(piece: Uint8Array): boolean {
  return piece.length < RUNTIME.smallPieceBytes || (piece.length < RUNTIME.lastBlockBytes && pins(piece));
}

/** Bytes that wait to be read or sent, in order. */
export class Waiting {
  readonly #pieces = new Queue<Uint8Array>();
  #packing = new Packing();
  /** In bytes. Its own methods alone change it. */
  length = 0;

  push(piece: Uint8Array): void {
    this.length += piece.length;
    const { last } = this.#pieces;
    const more = last && this.#packing.extend(last, piece);
    if (more) this.#pieces.last = more;
    else this.#pieces.push(this.#packing.begin(piece));
  }

  /** Returns the next piece, or undefined if nothing waits. */
  shift(): Uint8Array | undefined {
    const piece = this.#pieces.shift();
    if (piece && this.#pieces.size === 0) this.#packing = new Packing();
    this.length -= piece?.length ?? 0;
    return piece;
  }

  clear(): void {
    this.#pieces.clear();
    this.#packing = new Packing();
    this.length = 0;
  }
}
