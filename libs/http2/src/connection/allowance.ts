import { systemClock } from '@isthmus/runtime';

export interface AllowanceOptions {
  /** The size of the bucket. */
  readonly atOnce: number;
  /** What each second adds. */
  readonly perSecond: number;
  /** Milliseconds. */
  readonly now?: () => number;
}

/** How often the clock is looked at while a full bucket is spent. */
const CLOCK_LOOKS = 16;

/**
 * A token bucket that looks at the clock only after each sixteenth of it was spent. So after a rest, a burst may be a sixteenth larger: the
 * next look also pays back what was spent before it.
 */
export class Allowance {
  readonly #atOnce: number;
  readonly #perSecond: number;
  readonly #now: () => number;
  #left: number;
  /** The clock is looked at when less than this is left. */
  #lookBelow: number;
  #since: number;

  constructor({ atOnce, perSecond, now = systemClock.now }: AllowanceOptions) {
    this.#atOnce = atOnce;
    this.#perSecond = perSecond;
    this.#now = now;
    this.#left = atOnce;
    this.#lookBelow = atOnce - atOnce / CLOCK_LOOKS;
    this.#since = now();
  }

  earn(more: number): void {
    this.#left = Math.min(this.#atOnce, this.#left + more);
    this.#lookBelow = Math.max(this.#lookBelow, this.#left - this.#atOnce / CLOCK_LOOKS);
  }

  /** @returns whether the bucket held as much */
  spend(cost: number): boolean {
    this.#left -= cost;
    return this.#left >= this.#lookBelow || this.#refill();
  }

  #refill(): boolean {
    const now = this.#now();
    this.#lookBelow = 0;
    this.earn(((now - this.#since) / 1000) * this.#perSecond);
    this.#since = now;
    return this.#left >= 0;
  }
}
