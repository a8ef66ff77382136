/** A set that gives a random member in constant time, so that the cost of a choice does not grow with the fleet. */
export class RandomSet<T> {
  readonly #members: T[] = [];
  readonly #positions = new Map<T, number>();

  get size(): number {
    return this.#members.length;
  }

  add(member: T): void {
    if (this.#positions.has(member)) return;
    this.#positions.set(member, this.#members.length);
    this.#members.push(member);
  }

  delete(member: T): boolean {
    const position = this.#positions.get(member);
    if (position === undefined) return false;
    const last = this.#members.pop() as T;
    if (last !== member) {
      this.#members[position] = last;
      this.#positions.set(last, position);
    }
    this.#positions.delete(member);
    return true;
  }

  /**
   * A random member that passes `eligible`, or undefined when none does: a few draws first, then one pass from a random
   * start, so that a set with few eligible members still gives one.
   */
  draw(random: () => number, eligible: (member: T) => boolean): T | undefined {
    const size = this.#members.length;
    if (size === 0) return undefined;
    for (let tries = 0; tries < 4; tries++) {
      const member = this.#members[Math.floor(random() * size)] as T;
      if (eligible(member)) return member;
    }
    const start = Math.floor(random() * size);
    for (let step = 0; step < size; step++) {
      const member = this.#members[(start + step) % size] as T;
      if (eligible(member)) return member;
    }
    return undefined;
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#members[Symbol.iterator]();
  }
}
