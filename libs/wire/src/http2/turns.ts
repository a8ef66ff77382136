import { Queue } from '@isthmus/runtime';
import { WIRE } from '../defaults.ts';

/** Handles the ends of streams and connections in their order, spread over turns of the event loop. */
export class Closings {
  readonly #later: (next: () => void) => void;
  readonly #waiting = new Queue<() => void>();
  /** How many may still be called in this turn. */
  #left = WIRE.closingsATurn;
  #scheduled = false;

  constructor(later: (next: () => void) => void = setImmediate) {
    this.#later = later;
  }

  /** Calls back at once, or in a later turn if many have ended in this one. @param closed must not throw */
  add(closed: () => void): void {
    this.#schedule();
    if (this.#left > 0 && this.#waiting.size === 0) {
      this.#left--;
      closed();
    } else this.#waiting.push(closed);
  }

  #schedule(): void {
    if (!this.#scheduled) this.#later(() => this.#turn());
    this.#scheduled = true;
  }

  #turn(): void {
    this.#scheduled = false;
    for (this.#left = WIRE.closingsATurn; this.#left > 0 && this.#waiting.size > 0; this.#left--)
      this.#waiting.shift()?.();
    if (this.#waiting.size > 0) this.#schedule();
  }
}

/** Shared by this process. */
export const closings: Closings = new Closings();

/** What connections have read in this turn of the event loop. */
export class ReadTurn {
  /** Counts turns. */
  #turn = 0;
  #bytes = 0;
  #begun = false;
  readonly #later: (next: () => void) => void;

  constructor(later: (next: () => void) => void = setImmediate) {
    this.#later = later;
  }

  /** Counts bytes that one connection read, or what a stream that it opened counts for. @returns whether it should rest until the next turn */
  count(reader: TurnReader, bytes: number): boolean {
    if (!this.#begun) this.#begin();
    if (reader.turn !== this.#turn) {
      reader.turn = this.#turn;
      reader.bytes = 0;
    }
    reader.bytes += bytes;
    this.#bytes += bytes;
    return this.#bytes >= WIRE.readATurnBytes && reader.bytes > WIRE.readAtLeastBytes;
  }

  #begin(): void {
    this.#begun = true;
    this.#later(() => {
      this.#begun = false;
      this.#turn++;
      this.#bytes = 0;
    });
  }
}

/** What one connection has read. `ReadTurn` alone writes it. */
export class TurnReader {
  /** The last turn in which it read. */
  turn = -1;
  /** Of that turn. */
  bytes = 0;
}

/** Shared by this process. */
export const readTurn = new ReadTurn();
