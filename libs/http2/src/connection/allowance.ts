export interface AllowanceOptions {
  /** What may be spent at once. */
  readonly atOnce: number;
  /** What a second adds. */
  readonly perSecond: number;
  /** Milliseconds. */
  readonly now?: () => number;
}

/** The clock is looked at once in such a part of the bucket. */
const PARTS = 16;

/**
 * A token bucket. The clock is looked at each time that a sixteenth of it was spent, not at each cost. What was spent since the last look
 * may be given back by time that had passed before: after a rest a burst may be a sixteenth larger.
 */
export class Allowance {
  readonly #atOnce: number;
  readonly #perSecond: number;
  readonly #now: () => number;
  #left: number;
  /** The clock is looked at when less than so much is left. */
  #lookBelow: number;
  #since: number;

  constructor({ atOnce, perSecond, now = () => performance.now() }: AllowanceOptions) {
    this.#atOnce = atOnce;
    this.#perSecond = perSecond;
    this.#now = now;
    this.#left = atOnce;
    this.#lookBelow = atOnce - atOnce / PARTS;
    this.#since = now();
  }

  earn(more: number): void {
    this.#left = Math.min(this.#atOnce, this.#left + more);
    this.#lookBelow = Math.max(this.#lookBelow, this.#left - this.#atOnce / PARTS);
  }

  /** @returns whether there was as much */
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
