/** Label values by label name. */
export type Labels<L extends string> = Readonly<Record<L, string | number>>;

/** The value of a gauge or counter for one set of labels, read for each page. */
export class Count {
  #value = 0;

  get value(): number {
    return this.#value;
  }

  inc(by = 1): void {
    this.#value += by;
  }

  dec(): void {
    this.#value--;
  }

  set(value: number): void {
    this.#value = value;
  }
}

/** A family's values, one for each set of labels that was used, in the order of first use. */
export class Series<L extends string, T> {
  readonly #names: readonly L[];
  readonly #begin: () => T;
  readonly #by = new Map<string, readonly [labels: Labels<L>, one: T]>();

  constructor(names: readonly L[], begin: () => T) {
    this.#names = names;
    this.#begin = begin;
  }

  /** Returns the value for a set of labels. Keep it if you need it often: the look-up costs more than updating the value. */
  of(labels: Labels<L>): T {
    const key = JSON.stringify(this.#names.map((name) => String(labels[name])));
    let found = this.#by.get(key);
    if (!found) {
      found = [labels, this.#begin()];
      this.#by.set(key, found);
    }
    return found[1];
  }

  [Symbol.iterator](): Iterator<readonly [labels: Labels<L>, one: T]> {
    return this.#by.values();
  }
}
