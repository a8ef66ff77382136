/**
 * A token bucket (client-go's QPS and burst): `burst` calls at once, then `perSecond`. Calls are served in order of arrival.
 */
export class RateLimit {
  readonly #intervalMs: number;
  readonly #burst: number;
  readonly #now: () => number;
  /** When the bucket would be full again, in milliseconds of `now`. */
  #fullAt = Number.NEGATIVE_INFINITY;

  constructor(perSecond: number, burst: number, now: () => number = () => performance.now()) {
    this.#intervalMs = 1000 / perSecond;
    this.#burst = burst;
    this.#now = now;
  }

  /**
   * Returns how long to wait before the call, in milliseconds. Reserves a place in the queue, unless the wait is longer than
   * `patienceMs`. Then the call must not be sent.
   */
  reserve(patienceMs: number): number {
    const now = this.#now();
    const fullAt = Math.max(this.#fullAt, now) + this.#intervalMs;
    const wait = Math.max(0, fullAt - now - this.#burst * this.#intervalMs);
    if (wait <= patienceMs) this.#fullAt = fullAt;
    return wait;
  }
}
