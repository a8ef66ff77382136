import { Queue } from '@isthmus/runtime';
import { WIRE } from '../defaults.ts';

/** Handles the ends of streams and connections in their order, spread over ticks of the event loop. */
export class Closings {
  readonly #later: (next: () => void) => void;
  readonly #waiting = new Queue<() => void>();
  /** How many may still be called in this tick. */
  #left = WIRE.closingsATick;
  #scheduled = false;

  constructor(later: (next: () => void) => void = setImmediate) {
    this.#later = later;
  }

  /** Calls back at once, or in a later tick if many have ended in this one. @param closed must not throw */
  add(closed: () => void): void {
    this.#schedule();
    if (this.#left > 0 && this.#waiting.size === 0) {
      this.#left--;
      closed();
    } else this.#waiting.push(closed);
  }

  #schedule(): void {
    if (!this.#scheduled) this.#later(() => this.#tick());
    this.#scheduled = true;
  }

  #tick(): void {
    this.#scheduled = false;
    for (this.#left = WIRE.closingsATick; this.#left > 0 && this.#waiting.size > 0; this.#left--)
      this.#waiting.shift()?.();
    if (this.#waiting.size > 0) this.#schedule();
  }
}

/** Shared by this process. */
export const closings: Closings = new Closings();

/** What connections have read in this tick of the event loop. */
export class ReadBudget {
  /** Counts ticks. */
  #tick = 0;
  #bytes = 0;
  #begun = false;
  readonly #later: (next: () => void) => void;
  readonly #next = () => {
    this.#begun = false;
    this.#tick++;
    this.#bytes = 0;
  };

  constructor(later: (next: () => void) => void = setImmediate) {
    this.#later = later;
  }

  /** Counts bytes that one connection read, or what a stream that it opened counts for. @returns whether it should rest until the next tick */
  count(reader: ConnectionReads, bytes: number): boolean {
    if (!this.#begun) {
      this.#begun = true;
      this.#later(this.#next);
    }
    if (reader.tick !== this.#tick) {
      reader.tick = this.#tick;
      reader.bytes = 0;
    }
    reader.bytes += bytes;
    this.#bytes += bytes;
    return this.#bytes >= WIRE.readATickBytes && reader.bytes > WIRE.readAtLeastBytes;
  }
}

/** What one connection has read. `ReadBudget` alone writes it. */
export class ConnectionReads {
  /** The last tick in which it read. */
  tick = -1;
  /** Of that tick. */
  bytes = 0;
}

/** Shared by this process. */
export const readBudget = new ReadBudget();
