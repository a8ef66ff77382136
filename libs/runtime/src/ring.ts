/** Keeps the last items, up to a capacity, and forgets older ones. */
export class Ring<T> {
  readonly #items: T[] = [];
  readonly #capacity: number;
  #pushed = 0;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get size(): number {
    return this.#items.length;
  }

  /** How many items were forgotten. */
  get forgotten(): number {
    return this.#pushed - this.#items.length;
  }

  push(item: T): void {
    this.#items[this.#pushed % this.#capacity] = item;
    this.#pushed++;
  }

  /** Iterates over the items present now, oldest first. */
  *[Symbol.iterator](): Iterator<T> {
    const end = this.#pushed;
    for (let index = end - this.#items.length; index < end; index++) {
      // Items pushed meanwhile have replaced some.
      if (index >= this.#pushed - this.#capacity) yield this.#items[index % this.#capacity] as T;
    }
  }
}
