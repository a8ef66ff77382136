/** Recent results by key. If there are too many, the oldest is dropped. */
export class Remembered<V> {
  readonly #forMs: number;
  readonly #most: number;
  readonly #now: () => number;
  /** In order of arrival, which is the order in which they expire. */
  readonly #known = new Map<string, { readonly value: V; readonly until: number }>();

  /** @param forMs how long a result is valid, in milliseconds. 0 remembers nothing */
  constructor(forMs: number, most: number, now: () => number) {
    this.#forMs = forMs;
    this.#most = most;
    this.#now = now;
  }

  get size(): number {
    return this.#known.size;
  }

  get(key: string): V | undefined {
    const known = this.#known.get(key);
    if (!known) return undefined;
    if (known.until > this.#now()) return known.value;
    this.#known.delete(key);
    return undefined;
  }

  put(key: string, value: V): void {
    if (this.#forMs <= 0) return;
    this.#known.delete(key);
    this.#known.set(key, { value, until: this.#now() + this.#forMs });
    for (const [oldest, { until }] of this.#known) {
      if (until > this.#now() && this.#known.size <= this.#most) break;
      this.#known.delete(oldest);
    }
  }
}
