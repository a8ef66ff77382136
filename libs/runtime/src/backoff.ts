/** Delays that grow from `first` to `cap` milliseconds. Each is random within its upper half, so that a herd does not return at once. */
export class Backoff {
  readonly #first: number;
  readonly #cap: number;
  readonly #random: () => number;
  #failures = 0;

  constructor(first: number, cap: number, random: () => number = Math.random) {
    this.#first = first;
    this.#cap = Math.max(first, cap);
    this.#random = random;
  }

  /** Milliseconds to wait before the next try. */
  next(): number {
    const ceiling = Math.min(this.#cap, this.#first * 2 ** this.#failures++);
    return ceiling * (0.5 + this.#random() / 2);
  }

  reset(): void {
    this.#failures = 0;
  }
}
