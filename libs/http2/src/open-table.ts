interface Slot<T> {
  open: T | undefined;
}

/**
 * What is open, by its id: a Map for what comes and goes often.
 *
 * V8 gives a Map that is full of what was deleted a new table, to which the old one points. Once one table has grown old, each
 * of its successors is kept by the one before until the whole heap is collected, with all that was in it at the time. Here
 * that is no more than slots, which are emptied by then.
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

  /** In the order in which they came; of those that go meanwhile no more is seen. */
  *values(): Iterable<T> {
    for (const { open } of this.#slots.values()) if (open !== undefined) yield open;
  }
}
