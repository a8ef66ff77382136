/**
 * Bytes that were sent and may have to be sent again, by position: the number of bytes before them since the tunnel began. Chunks are
 * referred to, not copied.
 */
export class Kept {
  readonly #chunks: Uint8Array[] = [];
  /** The chunks before this index are let go of. */
  #first = 0;
  /** The position of the first byte kept, and the one behind the last. */
  #from = 0;
  #to = 0;

  /** The position of the first byte kept. */
  get from(): number {
    return this.#from;
  }

  /** The position behind the last byte. */
  get to(): number {
    return this.#to;
  }

  get bytes(): number {
    return this.#to - this.#from;
  }

  add(chunk: Uint8Array): void {
    if (chunk.length === 0) return;
    this.#chunks.push(chunk);
    this.#to += chunk.length;
  }

  /** Lets go of what lies before a position. @param position from `from` to `to` */
  release(position: number): void {
    let left = position - this.#from;
    this.#from = position;
    while (left > 0) {
      const chunk = this.#chunks[this.#first] as Uint8Array;
      if (left < chunk.length) {
        this.#chunks[this.#first] = chunk.subarray(left);
        break;
      }
      left -= chunk.length;
      this.#chunks[this.#first++] = EMPTY;
    }
    this.#compact();
  }

  *chunks(): Iterable<Uint8Array> {
    for (let index = this.#first; index < this.#chunks.length; index++) yield this.#chunks[index] as Uint8Array;
  }

  /** Each entry is moved once for each that was let go of, at most. */
  #compact(): void {
    if (this.#first * 2 <= this.#chunks.length) return;
    this.#chunks.splice(0, this.#first);
    this.#first = 0;
  }
}

const EMPTY = new Uint8Array();
