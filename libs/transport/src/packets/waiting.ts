import { Packing } from '@isthmus/runtime';

/** Received bytes that wait for their reader, in order. */
export class Waiting {
  readonly #pieces: Uint8Array[] = [];
  #packing = new Packing();
  #length = 0;

  /** In bytes. */
  get length(): number {
    return this.#length;
  }

  push(piece: Uint8Array): void {
    this.#length += piece.length;
    const at = this.#pieces.length - 1;
    const last = this.#pieces[at];
    const more = last && this.#packing.extend(last, piece);
    if (more) this.#pieces[at] = more;
    else this.#pieces.push(this.#packing.begin(piece));
  }

  /** Returns the next piece, or undefined if nothing waits. */
  shift(): Uint8Array | undefined {
    const piece = this.#pieces.shift();
    if (this.#pieces.length === 0) this.#packing = new Packing();
    this.#length -= piece?.length ?? 0;
    return piece;
  }

  clear(): void {
    this.#pieces.length = 0;
    this.#packing = new Packing();
    this.#length = 0;
  }
}
