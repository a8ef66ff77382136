/** Values by the names of labels. */
export type Labels<L extends string> = Readonly<Record<L, string | number>>;

/** What a gauge or a counter says for one set of labels: a number, which the page reads when it is asked for. */
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

/** What a family has for each set of labels that was used, in the order in which they came. */
export class Series<L extends string, T> {
  readonly #names: readonly L[];
  readonly #begin: () => T;
  readonly #by = new Map<string, readonly [labels: Labels<L>, one: T]>();

  constructor(names: readonly L[], begin: () => T) {
    this.#names = names;
    this.#begin = begin;
  }

  /** To be kept by who needs it often: finding it costs more than what is done with it. */
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
