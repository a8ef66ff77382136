/** A map of at most so many entries. One entry more removes the one that was read or written longest ago. */
export class LruMap<K, V> extends Map<K, V> {
  readonly #most: number;
  readonly #removed: (value: V) => void;

  /** @param removed called with a value that another entry has removed */
  constructor(most: number, removed: (value: V) => void = () => {}) {
    super();
    this.#most = most;
    this.#removed = removed;
  }

  override get(key: K): V | undefined {
    const value = super.get(key);
    if (value !== undefined) this.#append(key, value);
    return value;
  }

  override set(key: K, value: V): this {
    this.#append(key, value);
    if (this.size > this.#most) this.#removeOldest();
    return this;
  }

  #append(key: K, value: V): void {
    this.delete(key);
    super.set(key, value);
  }

  #removeOldest(): void {
    for (const [key, value] of this) {
      this.delete(key);
      this.#removed(value);
      return;
    }
  }
}
