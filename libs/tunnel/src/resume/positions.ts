import { Packing } from '@isthmus/runtime';

/** A chunk, and the one behind it. */
interface KeptChunk {
  chunk: Uint8Array;
  next: KeptChunk | undefined;
}

/**
 * The bytes that a half sends, and keeps because it may have to send them again, and their end. A position is the number of bytes before it
 * since the tunnel began. Long chunks are kept as they are. A chunk that would hold much more memory than it needs is copied.
 */
export class Outgoing {
  /** Whether nothing follows the bytes so far. */
  ended = false;
  /** How many bytes the other half says that its socket has taken. */
  acknowledged = 0;
  /** Whether the other half has taken everything, and the end. */
  done = false;
  /** The last position that this half has asked about (`Mark.ask`). */
  ask = 0;
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

  /** Drops the bytes before a position. @param position from `from` to `to` */
  release(position: number): void {
    let left = position - this.from;
    this.from = position;
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

  /** Bytes that the other half has not taken. */
  get unacknowledged(): number {
    return this.to - this.acknowledged;
  }

  /** As `Mark.taken` of the other half. */
  get acknowledgedWithEnd(): number {
    return this.done ? this.acknowledged + 1 : this.acknowledged;
  }

  /** @param taken as `Mark.taken` */
  acknowledge(taken: number): void {
    this.done = taken > this.to;
    this.acknowledged = this.done ? this.to : taken;
    if (this.acknowledged > this.from) this.release(this.acknowledged);
  }

  /** The position at which it goes on, if the other half has received this many bytes. */
  next(received: number): number {
    return Math.max(this.from, received);
  }

  /** Returns why the other half cannot have taken and received this many bytes. */
  faultOf(taken: number, received = 0): string | undefined {
    if (taken > this.to + (this.ended ? 1 : 0)) return `it took ${taken} of ${this.to} bytes`;
    if (received > this.to) return `it got ${received} of ${this.to} bytes`;
    return undefined;
  }
}

/**
 * Takes a chunk out of the chain. One that has grown old lies in V8's old generation until the whole heap is collected, and what it
 * points to does not die young: so each chunk kept all that came behind it, and a fast tunnel had its process collect the whole heap ten
 * times a second.
 */
function cut(kept: KeptChunk): KeptChunk | undefined {
  const { next } = kept;
  kept.next = undefined;
  return next;
}

/** The bytes that come to a half, as positions: how far carriers have brought them, and how far the socket here has taken them. */
export class Incoming {
  /** Bytes that have arrived. */
  received = 0;
  /** Bytes that the socket here has taken. */
  taken = 0;
  /** The position of the other side's end, once it is known. */
  final: number | undefined;
  /** Whether the socket here is told the end, and whether it has taken everything, too. */
  ended = false;
  done = false;
  /** The last position of taken bytes that the other half was told. */
  told = 0;
  /** The last position that the other half has asked about (`Mark.ask`). */
  asked = 0;
  /** The position of the carrier's next byte. Lower than `received` while the carrier repeats bytes of an earlier one. */
  #carrierAt = 0;

  /** What the socket has taken, and one more once it has seen the end. */
  get takenWithEnd(): number {
    return this.done ? this.taken + 1 : this.taken;
  }

  /** How much more was taken than the other half knows. */
  get untold(): number {
    return this.takenWithEnd - this.told;
  }

  /** Whether the other half has asked, and can now be told. */
  get isAsked(): boolean {
    return this.asked > this.told && this.taken >= this.asked;
  }

  /** A new carrier brings what was not taken, beginning with the byte at this position. */
  goOn(at: number): void {
    this.#carrierAt = at;
    this.received = this.taken;
    this.ended = this.done;
  }

  /** Counts bytes of the carrier. @returns how many of them had already arrived on an earlier one */
  arrive(length: number): number {
    const again = Math.min(Math.max(this.received - this.#carrierAt, 0), length);
    this.#carrierAt += length;
    this.received += length - again;
    return again;
  }

  take(bytes: number): void {
    this.taken += bytes;
    this.done = this.ended && this.taken === this.final;
  }

  /** All has arrived. */
  end(): void {
    this.ended = true;
    this.done = this.taken === this.final;
  }

  /** Returns why the other half cannot end there. */
  faultOf(final: number | undefined): string | undefined {
    const fits = final === undefined || (final >= this.received && (this.final ?? final) === final);
    return fits ? undefined : `it cannot end at byte ${final}`;
  }
}
