/** What counts against the limits of its source, such as connections. */
export class BySource<T> {
  readonly #all = new Set<T>();
  readonly #sources = new Map<string, Set<T>>();
  /** The sources that have one, two, and so on. A source moves by one at a time, so the last of these is never empty. */
  readonly #ranks: Set<Set<T>>[] = [];

  get size(): number {
    return this.#all.size;
  }

  /** In order of arrival. */
  get all(): ReadonlySet<T> {
    return this.#all;
  }

  /** In order of arrival. Undefined if the source has none. */
  of(source: string): ReadonlySet<T> | undefined {
    return this.#sources.get(source);
  }

  /** Those of the source that has the most. */
  get most(): ReadonlySet<T> | undefined {
    const [most] = this.#ranks.at(-1) ?? [];
    return most;
  }

  add(source: string, item: T): void {
    if (this.#all.has(item)) return;
    this.#all.add(item);
    const own = this.#sources.get(source) ?? new Set();
    this.#sources.set(source, own.add(item));
    this.#rank(own, own.size - 1);
  }

  delete(source: string, item: T): void {
    const own = this.#sources.get(source);
    if (!own?.delete(item)) return;
    this.#all.delete(item);
    if (own.size === 0) this.#sources.delete(source);
    this.#rank(own, own.size + 1);
  }

  #rank(own: Set<T>, before: number): void {
    this.#ranks[before - 1]?.delete(own);
    if (own.size > 0) {
      const rank = this.#ranks[own.size - 1] ?? new Set();
      this.#ranks[own.size - 1] = rank.add(own);
    }
    if (this.#ranks.at(-1)?.size === 0) this.#ranks.pop();
  }
}
