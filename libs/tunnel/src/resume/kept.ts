import { Packing } from '@isthmus/runtime';

/** A chunk, and the one behind it. */
interface Link {
  chunk: Uint8Array;
  next: Link | undefined;
}

/**
 * Bytes that were sent and may have to be sent again. A position is the number of bytes before it since the tunnel began. Long chunks are
 * kept as they are. A chunk that would hold much more memory than it needs is copied.
 */
export class Kept {
  #first: Link | undefined;
  #last: Link | undefined;
  /** Set while something is kept. */
  #packing: Packing | undefined;
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
    this.#to += chunk.length;
    this.#packing ??= new Packing();
    const last = this.#last;
    const more = last && this.#packing.extend(last.chunk, chunk);
    if (more) last.chunk = more;
    else this.#push(this.#packing.begin(chunk));
  }

  #push(chunk: Uint8Array): void {
    const link = { chunk, next: undefined };
    if (this.#last) this.#last.next = link;
    else this.#first = link;
    this.#last = link;
  }

  /** Drops the bytes before a position. @param position from `from` to `to` */
  release(position: number): void {
    let left = position - this.#from;
    this.#from = position;
    let first = this.#first;
    while (first && left >= first.chunk.length) {
      left -= first.chunk.length;
      first = cut(first);
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
}

/**
 * Takes a chunk out of the chain. A link that has grown old lies in V8's old generation until the whole heap is collected, and what it
 * points to does not die young: so each link kept all that came behind it, and a fast tunnel had its process collect the whole heap ten
 * times a second.
 */
function cut(link: Link): Link | undefined {
  const { next } = link;
  link.next = undefined;
  return next;
}
