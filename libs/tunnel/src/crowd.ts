/**
 * A set for what comes and goes with every dial, without an order.
 *
 * V8 gives a Set (and a Map) that is full of what was deleted a new table, to which the old one points. Once one table has
 * grown old, each of its successors is kept by the one before until the whole heap is collected, with all that was in it at the
 * time: nothing of a dial died young any more, which was a quarter of a server's processor time. A WeakMap's table points to
 * nothing.
 */
export class Crowd<T extends object> implements Iterable<T> {
  readonly #members: T[] = [];
  readonly #places = new WeakMap<T, number>();

  get size(): number {
    return this.#members.length;
  }

  has(member: T): boolean {
    return this.#places.has(member);
  }

  add(member: T): void {
    if (!this.has(member)) this.#places.set(member, this.#members.push(member) - 1);
  }

  /** The last takes the place of the one that goes. */
  delete(member: T): boolean {
    const place = this.#places.get(member);
    if (place === undefined) return false;
    const last = this.#members.pop() as T;
    if (last !== member) {
      this.#members[place] = last;
      this.#places.set(last, place);
    }
    return this.#places.delete(member);
  }

  clear(): void {
    for (const member of this.#members.splice(0)) this.#places.delete(member);
  }

  /** Those that are there now, whoever goes meanwhile. */
  [Symbol.iterator](): Iterator<T> {
    return [...this.#members].values();
  }
}
