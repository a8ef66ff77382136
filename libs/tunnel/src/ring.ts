/** Keeps the last things that were put in, up to a bound; what is older is forgotten. */
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

  /** How many are not kept any more. */
  get forgotten(): number {
    return this.#pushed - this.#items.length;
  }

  push(item: T): void {
    this.#items[this.#pushed % this.#capacity] = item;
    this.#pushed++;
  }

  /** Oldest first: those that are in it now. */
  *[Symbol.iterator](): Iterator<T> {
    const end = this.#pushed;
    for (let index = end - this.#items.length; index < end; index++) {
      // What came in meanwhile has taken the place of some.
      if (index >= this.#pushed - this.#capacity) yield this.#items[index % this.#capacity] as T;
    }
  }
}
