import { Packing } from '@isthmus/runtime';

/** A chunk, and the one behind it. */
interface KeptChunk {
  chunk: Uint8Array;
  next: KeptChunk | undefined;
}

/**
 * The bytes that a half sends, and keeps because it may have to send them again. A position is the number of bytes before it since the tunnel
 * began. Long chunks are kept as they are. A chunk that would hold much more memory than it needs is copied.
 */
export class Outgoing {
  #first: KeptChunk | undefined;
  #last: KeptChunk | undefined;
  /** Set while something is kept. */
  #packing: Packing | undefined;
  /** The position of the first byte kept. */
  from = 0;
  /** The position behind the last byte. */
  to = 0;

  /** How many are kept. */
  get bytes(): number {
    return this.to - this.from;
  }

  /** @param chunk not empty @returns the chunk, as it is kept */
  add(chunk: Uint8Array): Uint8Array {
    this.to += chunk.length;
    this.#packing ??= new Packing();
    const last = this.#last;
    const more = last && this.#packing.extend(last.chunk, chunk);
    if (more) {
      last.chunk = more;
      return more.subarray(more.length - chunk.length);
    }
    const link = { chunk: this.#packing.begin(chunk), next: undefined };
    if (last) last.next = link;
    else this.#first = link;
    this.#last = link;
    return link.chunk;
  }

  /**
   * Drops the bytes before a position. A chunk that has grown old lies in V8's old generation until the whole heap is collected, and what it
   * points to does not die young: if each kept the next one, a fast tunnel had its process collect the whole heap ten times a second.
   * @param position from `from` to `to`
   */
  release(position: number): void {
    let left = position - this.from;
    this.from = position;
    let first = this.#first;
    while (first && left >= first.chunk.length) {
      left -= first.chunk.length;
      const { next } = first;
      first.next = undefined;
      first = next;
    }
    if (first && left > 0) first.chunk = first.chunk.subarray(left);
    this.#first = first;
    if (first) return;
    this.#last = undefined;
    this.#packing = undefined;
  }

  *chunks(): Iterable<Uint8Array> {
    for (let link = this.#first; link; link = link.next) yield link.chunk;
  }

  /** The position at which it goes on, if the other half has received this many bytes. */
  next(received: number): number {
    return Math.max(this.from, received);
  }
}
