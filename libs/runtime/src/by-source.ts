/** What counts against the limits of its source, such as connections. */
export class BySource<T> {
  /** Each source's in order of arrival. */
  readonly #sources = new Map<string, Set<T>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Undefined if the source has none. */
  of(source: string): ReadonlySet<T> | undefined {
    return this.#sources.get(source);
  }

  /** Those of the source that has the most. */
  get most(): ReadonlySet<T> | undefined {
    let most: Set<T> | undefined;
    for (const one of this.#sources.values()) if (one.size > (most?.size ?? 0)) most = one;
    return most;
  }

  add(source: string, item: T): void {
    const own = this.#sources.get(source);
    if (own) own.add(item);
    else this.#sources.set(source, new Set([item]));
    this.#size++;
  }

  delete(source: string, item: T): void {
    const own = this.#sources.get(source);
    if (!own?.delete(item)) return;
    this.#size--;
    if (own.size === 0) this.#sources.delete(source);
  }
}
