import { randomFillSync } from 'node:crypto';
import { RUNTIME } from './defaults.ts';

/**
 * An unordered set for objects that come and go with every dial. It returns a random member in constant time.
 *
 * When a Set or Map is full of deleted entries, V8 gives it a new table, and the old table points to the new one. Once one table
 * is in the old generation, it keeps its successor alive, and so on, with everything that was in them, until V8 collects the whole
 * heap. Objects of a dial then do not die young, which costs a quarter of a server's processor time. A WeakMap's table points to
 * nothing.
 */
export class RandomSet<T extends object> implements Iterable<T> {
  /** Its own methods alone change it. */
  size = 0;
  readonly #members: T[] = [];
  /** Where each member is. Unset until the set first outgrows a scan. */
  #places: WeakMap<T, number> | undefined;

  has(member: T): boolean {
    return this.#places ? this.#places.has(member) : this.#members.includes(member);
  }

  add(member: T): void {
    if (this.#places ? this.#places.has(member) : this.#members.includes(member)) return;
    const place = this.size;
    this.size = this.#members.push(member);
    if (this.#places) this.#places.set(member, place);
    else if (place >= RUNTIME.scannedMembers) this.#places = new WeakMap(this.#members.map((each, at) => [each, at]));
  }

  /** Moves the last member into the gap. */
  delete(member: T): boolean {
    const place = this.#places ? (this.#places.get(member) ?? -1) : this.#members.indexOf(member);
    if (place < 0) return false;
    const last = this.#members.pop() as T;
    this.size--;
    if (last !== member) {
      this.#members[place] = last;
      this.#places?.set(last, place);
    }
    this.#places?.delete(member);
    return true;
  }

  clear(): void {
    this.#members.length = 0;
    this.size = 0;
    this.#places = undefined;
  }

  /**
   * Returns a random member that passes `eligible`, or undefined if none does. Draws a few times first, then makes one pass from a
   * random start, so that it finds a member even if few are eligible.
   */
  draw(random: () => number, eligible: (member: T) => boolean): T | undefined {
    const { size } = this;
    let start = 0;
    for (let tries = 0; size > 0 && tries < RUNTIME.randomDraws; tries++) {
      start = Math.floor(random() * size);
      const member = this.#members[start] as T;
      if (eligible(member)) return member;
    }
    for (let step = 0; step < size; step++) {
      const member = this.#members[(start + step) % size] as T;
      if (eligible(member)) return member;
    }
    return undefined;
  }

  /** Iterates over a copy, so members may be deleted meanwhile. */
  [Symbol.iterator](): Iterator<T> {
    return [...this.#members].values();
  }
}

/** Random bytes at hand: to get a few of them takes as long as to get all these. */
const pool = Buffer.alloc(RUNTIME.randomBytes);
let next = pool.length;

/** Returns so many random bytes as hexadecimal digits. */
export function randomHex(bytes: number): string {
  if (next + bytes > pool.length) {
    randomFillSync(pool);
    next = 0;
  }
  next += bytes;
  return pool.toString('hex', next - bytes, next);
}
