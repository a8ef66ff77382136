/** Longest window, in seconds. One more slot is for the current second. */
const LONGEST_WINDOW_S = 60;

/** Number of dials that were answered in a window that ends now. */
export interface Rate {
  /** Length of the window: the requested seconds, or the time since counting started if that is shorter. */
  readonly windowMs: number;
  readonly dials: number;
  readonly failures: number;
}

/** Counts dials per second, for the longest window. A dial costs two additions. */
export class DialRates {
  readonly #dials = new Uint32Array(LONGEST_WINDOW_S + 1);
  readonly #failures = new Uint32Array(LONGEST_WINDOW_S + 1);
  readonly #start: number;
  #second: number;

  /** @param now milliseconds of `performance.now()`, here and below */
  constructor(now: number) {
    this.#start = now;
    this.#second = Math.floor(now / 1000);
  }

  count(now: number, failed: boolean): void {
    this.#advance(now);
    const slot = this.#second % this.#dials.length;
    this.#dials[slot] = (this.#dials[slot] as number) + 1;
    if (failed) this.#failures[slot] = (this.#failures[slot] as number) + 1;
  }

  /** @param seconds of the window, at most 60 */
  over(seconds: number, now: number): Rate {
    this.#advance(now);
    let dials = 0;
    let failures = 0;
    for (let back = 0; back <= Math.min(seconds, LONGEST_WINDOW_S); back++) {
      const slot = (this.#second - back + this.#dials.length) % this.#dials.length;
      dials += this.#dials[slot] as number;
      failures += this.#failures[slot] as number;
    }
    // The full seconds, and the elapsed part of the current one.
    const windowMs = Math.max(1, Math.min(now - this.#start, seconds * 1000 + (now % 1000)));
    return { windowMs, dials, failures };
  }

  /** Clears the seconds in which nothing was counted. */
  #advance(now: number): void {
    const second = Math.floor(now / 1000);
    const passed = Math.min(second - this.#second, this.#dials.length);
    for (let step = 1; step <= passed; step++) {
      const slot = (this.#second + step) % this.#dials.length;
      this.#dials[slot] = 0;
      this.#failures[slot] = 0;
    }
    if (passed > 0) this.#second = second;
  }
}
