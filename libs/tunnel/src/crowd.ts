/**
 * A set for what comes and goes with every dial, without an order, that gives a random member in constant time.
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

  /**
   * A random member that passes `eligible`, or undefined when none does: a few draws first, then one pass from a random
   * start, so that a crowd with few eligible members still gives one.
   */
  draw(random: () => number, eligible: (member: T) => boolean): T | undefined {
    const { size } = this;
    const drawn = () => Math.floor(random() * size);
    for (let tries = 0; size > 0 && tries < 4; tries++) {
      const member = this.#members[drawn()] as T;
      if (eligible(member)) return member;
    }
    const start = drawn();
    for (let step = 0; step < size; step++) {
      const member = this.#members[(start + step) % size] as T;
      if (eligible(member)) return member;
    }
    return undefined;
  }

  /** Those that are there now, whoever goes meanwhile. */
  [Symbol.iterator](): Iterator<T> {
    return [...this.#members].values();
  }
}
