/** The breaker opens after this many failures in a row: nobody asks for a while. */
const MAX_FAILURES = 3;

/** How long nobody asks, in milliseconds. Then one asks, and the others wait for its result. */
const REST_MS = 10_000;

export interface BreakerOptions {
  readonly now?: () => number;
}

/** A circuit breaker for a server that does not answer. Those who need it fail at once, and one at a time checks whether it is back. */
export class Breaker {
  readonly #now: () => number;
  #failures = 0;
  #restsUntil = Number.NEGATIVE_INFINITY;
  #why = '';

  constructor({ now = () => performance.now() }: BreakerOptions = {}) {
    this.#now = now;
  }

  /** Why nobody may ask now; undefined if one may. Call `succeeded` or `failed` after asking. */
  get refusal(): string | undefined {
    if (this.#failures < MAX_FAILURES) return undefined;
    const left = this.#restsUntil - this.#now();
    if (left > 0)
      return `it failed ${this.#failures} times in a row, and is asked again in ${Math.ceil(left / 1000)} s: ${this.#why}`;
    // One tries. If its result never comes, another one may try after the same time.
    this.#restsUntil = this.#now() + REST_MS;
    return undefined;
  }

  succeeded(): void {
    this.#failures = 0;
  }

  failed(why: string): void {
    this.#failures++;
    this.#why = why;
    this.#restsUntil = this.#now() + REST_MS;
  }
}
