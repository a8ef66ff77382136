interface Slot<T> {
  open: T | undefined;
}

/**
 * Open items by id: a Map for items that come and go often.
 *
 * When a Map is full of deleted entries, V8 gives it a new table, and the old table points to the new one. Once a table is in the old
 * generation, it keeps each successor, with all its entries, until a full garbage collection. Here the entries are only slots, and
 * deleted ones are emptied.
 */
export class OpenTable<K, T> {
  readonly #slots = new Map<K, Slot<T>>();

  get size(): number {
    return this.#slots.size;
  }

  has(id: K): boolean {
    return this.#slots.has(id);
  }

  get(id: K): T | undefined {
    return this.#slots.get(id)?.open;
  }

  set(id: K, open: T): void {
    const slot = this.#slots.get(id);
    if (slot) slot.open = open;
    else this.#slots.set(id, { open });
  }

  delete(id: K): void {
    const slot = this.#slots.get(id);
    if (!slot) return;
    slot.open = undefined;
    this.#slots.delete(id);
  }

  /** In the order of insertion, without items that are deleted meanwhile. */
  *values(): Iterable<T> {
    for (const { open } of this.#slots.values()) if (open !== undefined) yield open;
  }
}
