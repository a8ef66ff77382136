/** How fast a bucket fills, and how much fits into it. */
export interface TokenRate {
  readonly perSecond: number;
  readonly atOnce: number;
}

/** A token bucket whose rate may change between two uses. It begins full. */
export class TokenBucket {
  readonly #now: () => number;
  #left = Number.POSITIVE_INFINITY;
  #since: number;

  /** @param now milliseconds */
  constructor(now: () => number) {
    this.#now = now;
    this.#since = now();
  }

  /** Returns what may be spent now; below 0 after more was spent. */
  left({ perSecond, atOnce }: TokenRate): number {
    const now = this.#now();
    const earned = ((now - this.#since) / 1000) * perSecond;
    this.#since = now;
    this.#left = perSecond === Number.POSITIVE_INFINITY ? atOnce : Math.min(atOnce, this.#left + earned);
    return this.#left;
  }

  /** Spends a cost, or nothing if less is left. */
  take(cost: number, rate: TokenRate): boolean {
    if (this.left(rate) < cost) return false;
    this.#left -= cost;
    return true;
  }

  /** Spends a cost that cannot be refused, and returns what is left. */
  charge(cost: number, rate: TokenRate): number {
    this.left(rate);
    this.#left -= cost;
    return this.#left;
  }
}
