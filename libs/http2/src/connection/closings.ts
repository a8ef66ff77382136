/**
 * Streams and connections whose end is acted upon in one turn of the event loop, over all connections of the process. Each ends a tunnel,
 * with a socket, an error and a log line, which takes 0.5 ms. So when hundreds end at once, what others ask for meanwhile waits 8 ms and
 * not until all have ended.
 */
const A_TURN = 16;

/** Spreads what follows from the ends of streams and connections over turns of the event loop, in their order. */
export class Closings {
  readonly #later: (next: () => void) => void;
  #waiting: (() => void)[] = [];
  /** How many of those that wait were called. */
  #called = 0;
  /** How many may still be called in this turn. */
  #left = A_TURN;
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
    for (this.#left = A_TURN; this.#left > 0 && this.#called < this.#waiting.length; this.#left--)
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
