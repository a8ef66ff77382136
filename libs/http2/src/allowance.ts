export interface AllowanceOptions {
  /** What may be spent at once. */
  readonly atOnce: number;
  /** What a second adds. */
  readonly perSecond: number;
  /** Milliseconds. */
  readonly now?: () => number;
}

/** A token bucket. The clock is looked at only when it is empty. */
export class Allowance {
  readonly #atOnce: number;
  readonly #perSecond: number;
  readonly #now: () => number;
  #left: number;
  #since: number;

  constructor({ atOnce, perSecond, now = () => performance.now() }: AllowanceOptions) {
    this.#atOnce = atOnce;
    this.#perSecond = perSecond;
    this.#now = now;
    this.#left = atOnce;
    this.#since = now();
  }

  earn(more: number): void {
    this.#left = Math.min(this.#atOnce, this.#left + more);
  }

  /** @returns whether there was as much */
  spend(cost: number): boolean {
    this.#left -= cost;
    return this.#left >= 0 || this.#refill();
  }

  #refill(): boolean {
    const now = this.#now();
    this.earn(((now - this.#since) / 1000) * this.#perSecond);
    this.#since = now;
    return this.#left >= 0;
  }
}
