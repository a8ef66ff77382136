import { bufferSizes, type Clock, Packing, type SharedBudget } from '@isthmus/runtime';
import { Deadlines } from '../deadlines.ts';
import { TUNNEL } from '../defaults.ts';

export interface ResumeOptions {
  /** How long a detached tunnel waits for a new carrier, in milliseconds. */
  readonly timeoutMs: number;
  /** The process's memory for tunnels whose other end acknowledges late. */
  readonly budget: SharedBudget;
}

/** What the halves of a process have in common. */
export interface Halves {
  readonly clock: Clock;
  /** How long a half waits for a new carrier, in milliseconds. */
  readonly timeoutMs: number;
  /** How much each may keep. Both sides must have the same `most`. */
  readonly keeping: Keeping;
  /** Halves that have a mark to send that is not urgent, or a deadline. */
  readonly sweep: Deadlines;
}

export function halvesOf(
  { timeoutMs, budget }: ResumeOptions,
  clock: Clock,
  base = bufferSizes.kept,
  most = TUNNEL.keptMostBytes,
): Halves {
  const keeping = { base, most, budget, ahead: Math.min(bufferSizes.ahead, base) };
  return { clock, timeoutMs, keeping, sweep: new Deadlines(clock) };
}

/** How many bytes the tunnels of a process may keep. */
interface Keeping {
  /** What each tunnel may always keep. */
  readonly base: number;
  /** The most that one tunnel may keep: as much can be under way on a long path. */
  readonly most: number;
  /** What all tunnels together may keep beyond `base` each. */
  readonly budget: SharedBudget;
  /** What may be written beyond the limit, or ahead of a carrier that has no room, before the writer has to wait. */
  readonly ahead: number;
}

/** How many bytes one half may keep. It grows when they are reached, as long as the process has room. */
export class GrowingLimit {
  readonly #keeping: Keeping;
  readonly #group: string;
  #lent = 0;

  /** @param group who uses the budget: a tenant */
  constructor(keeping: Keeping, group: string) {
    this.#keeping = keeping;
    this.#group = group;
  }

  get bytes(): number {
    return this.#keeping.base + this.#lent;
  }

  /** Doubles the limit. @returns false if that would be too much */
  grow(): boolean {
    const { most, budget } = this.#keeping;
    const more = Math.min(this.bytes, most - this.bytes);
    if (more <= 0 || !budget.take(more, this.#group)) return false;
    this.#lent += more;
    return true;
  }

  /** Gives back what it grew by. */
  shrink(): void {
    if (this.#lent === 0) return;
    this.#keeping.budget.give(this.#lent, this.#group);
    this.#lent = 0;
  }
}

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
