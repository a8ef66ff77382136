/**
 * How many ends of streams and connections the process handles in one turn of the event loop. Each ends a tunnel, with a socket, an error
 * and a log line, which takes 0.5 ms. So when hundreds end at once, other work waits for 8 ms, and not until all have ended.
 */
const CLOSINGS_A_TURN = 16;

/** Handles the ends of streams and connections in their order, spread over turns of the event loop. */
export class Closings {
  readonly #later: (next: () => void) => void;
  #waiting: (() => void)[] = [];
  /** How many of `#waiting` were called. */
  #called = 0;
  /** How many may still be called in this turn. */
  #left = CLOSINGS_A_TURN;
  #scheduled = false;

  constructor(later: (next: () => void) => void = setImmediate) {
    this.#later = later;
  }

  /** Calls back at once, or in a later turn if many have ended in this one. @param closed must not throw */
  add(closed: () => void): void {
    this.#schedule();
    if (this.#left > 0 && this.#waiting.length === 0) {
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
    for (this.#left = CLOSINGS_A_TURN; this.#left > 0 && this.#called < this.#waiting.length; this.#left--)
      this.#waiting[this.#called++]?.();
    if (this.#called < this.#waiting.length) this.#schedule();
    else {
      this.#waiting = [];
      this.#called = 0;
    }
  }
}

/** Shared by this process. */
export const closings: Closings = new Closings();
