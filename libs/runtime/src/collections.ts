import { RUNTIME } from './defaults.ts';

/** Returns the value under a key. If there is none, creates and stores it first. */
export function getOrPut<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}

/** Takes a value out of the set, or a key out of the map, that is under a key, and that out with its last one. @returns whether it was there */
export function deleteFrom<K, V>(
  map: Map<K, { readonly size: number; delete(value: V): boolean }>,
  key: K,
  value: V,
): boolean {
  const values = map.get(key);
  if (!values?.delete(value)) return false;
  if (values.size === 0) map.delete(key);
  return true;
}

/** Adds to the count under a key. A count of 0 is not kept. @returns the count */
export function countIn<K>(counts: Map<K, number>, key: K, by: number): number {
  const count = (counts.get(key) ?? 0) + by;
  if (count === 0) counts.delete(key);
  else counts.set(key, count);
  return count;
}

/** Items by group, such as connections by their source. No operation depends on how many there are. */
export class Grouped<T> {
  readonly #all = new Set<T>();
  readonly #groups = new Map<string, Set<T>>();
  /** The groups that have one, two, and so on. A group moves by one at a time, so the last of these is never empty. */
  readonly #ranks: Set<Set<T>>[] = [];

  get size(): number {
    return this.#all.size;
  }

  /** In order of arrival. */
  get all(): ReadonlySet<T> {
    return this.#all;
  }

  /** In order of arrival. Undefined if the group has none. */
  of(group: string): ReadonlySet<T> | undefined {
    return this.#groups.get(group);
  }

  /** Those of the group that has the most, in order of arrival. */
  get most(): ReadonlySet<T> | undefined {
    const [most] = this.#ranks.at(-1) ?? [];
    return most;
  }

  add(group: string, item: T): void {
    if (this.#all.has(item)) return;
    this.#all.add(item);
    const own = this.#groups.get(group) ?? new Set();
    this.#groups.set(group, own.add(item));
    this.#rank(own, own.size - 1);
  }

  delete(group: string, item: T): void {
    const own = this.#groups.get(group);
    if (!own?.delete(item)) return;
    this.#all.delete(item);
    if (own.size === 0) this.#groups.delete(group);
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

/** A map of at most so many entries. One entry more removes the one that was read or written longest ago. */
export class LruMap<K, V> extends Map<K, V> {
  readonly #most: number;

  constructor(most: number) {
    super();
    this.#most = most;
  }

  override get(key: K): V | undefined {
    const value = super.get(key);
    if (value !== undefined && super.delete(key)) super.set(key, value);
    return value;
  }

  override set(key: K, value: V): this {
    super.delete(key);
    super.set(key, value);
    if (this.size > this.#most) super.delete(this.keys().next().value as K);
    return this;
  }
}

/** Keeps the last items, up to a capacity, and forgets older ones. */
export class Ring<T> {
  readonly #items: T[] = [];
  readonly #capacity: number;
  #pushed = 0;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get size(): number {
    return this.#items.length;
  }

  /** How many items were forgotten. */
  get forgotten(): number {
    return this.#pushed - this.#items.length;
  }

  push(item: T): void {
    this.#items[this.#pushed % this.#capacity] = item;
    this.#pushed++;
  }

  /** Iterates over the items present now, oldest first. */
  *[Symbol.iterator](): Iterator<T> {
    const end = this.#pushed;
    for (let index = end - this.#items.length; index < end; index++) {
      // Items pushed meanwhile have replaced some.
      if (index >= this.#pushed - this.#capacity) yield this.#items[index % this.#capacity] as T;
    }
  }
}

/** Items in the order in which they came, of which many may wait. */
export class Queue<T> {
  #items: (T | undefined)[] = [];
  /** Items at the front that were taken. */
  #taken = 0;
  /** Its own methods alone change it. */
  size = 0;

  get first(): T | undefined {
    return this.#items[this.#taken];
  }

  get last(): T | undefined {
    return this.#items.at(-1);
  }

  /** Replaces it. */
  set last(item: T) {
    this.#items[this.#items.length - 1] = item;
  }

  push(item: T): void {
    this.#items.push(item);
    this.size++;
  }

  shift(): T | undefined {
    if (this.size === 0) return undefined;
    const item = this.#items[this.#taken];
    this.#items[this.#taken++] = undefined;
    if (--this.size === 0) {
      this.#items = [];
      this.#taken = 0;
    } else if (this.#taken >= RUNTIME.droppedAtOnce && this.#taken >= this.size)
      this.#keep(this.#items.slice(this.#taken));
    return item;
  }

  /** Forgets the others. */
  filter(keep: (item: T) => boolean): void {
    this.#keep(this.#items.filter((item) => item !== undefined && keep(item)));
  }

  clear(): void {
    if (this.size > 0) this.#keep([]);
  }

  #keep(items: (T | undefined)[]): void {
    this.#items = items;
    this.#taken = 0;
    this.size = items.length;
  }
}

/**
 * Open items by id: a Map for items that come and go often.
 *
 * When a Map is full of deleted entries, V8 gives it a new table, and the old table points to the new one. Once a table is in the old
 * generation, it keeps each successor, with all its entries, until a full garbage collection. Here the entries are only slots, and
 * deleted ones are emptied.
 */
export class OpenTable<K, T> {
  /** Its own methods alone change it. */
  size = 0;
  readonly #slots = new Map<K, { open: T | undefined }>();

  has(id: K): boolean {
    return this.#slots.has(id);
  }

  get(id: K): T | undefined {
    return this.#slots.get(id)?.open;
  }

  set(id: K, open: T): void {
    const slot = this.#slots.get(id);
    if (slot) slot.open = open;
    else this.size = this.#slots.set(id, { open }).size;
  }

  delete(id: K): void {
    const slot = this.#slots.get(id);
    if (!slot) return;
    slot.open = undefined;
    this.#slots.delete(id);
    this.size = this.#slots.size;
  }

  /** In the order of insertion, without items that are deleted meanwhile. */
  *values(): Iterable<T> {
    for (const { open } of this.#slots.values()) if (open !== undefined) yield open;
  }
}

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

/** A member of `Rounds`, which alone writes these fields. */
export interface TakesTurns {
  /** Who comes after it; undefined while it has nothing to do. */
  next: this | undefined;
  /** What it may still spend in its turn. At 0 or less it has spent more, and owes. */
  credit: number;
}

/**
 * Members take turns by deficit round robin (Shreedhar and Varghese, 1995). A turn is over once its member has spent a quantum. What it
 * spent beyond that counts against its next turn, so that in the long run all spend alike, however large each cost is. No operation
 * depends on how many members there are, except `spend` of more than a quantum at once.
 */
export class Rounds<M extends TakesTurns> {
  readonly #quantum: number;
  /** Its `next` has the turn: members are linked in a circle. */
  #last: M | undefined;
  /** Members that have something to do. Its own methods alone change it. */
  size = 0;

  constructor(quantum: number) {
    this.#quantum = quantum;
  }

  /** Whose turn it is; undefined if nobody has anything to do. */
  get current(): M | undefined {
    return this.#last?.next;
  }

  /** A member has something to do. A new one comes last in the round, with a quantum less what it owes. */
  enter(member: M): void {
    if (member.next !== undefined) return;
    member.credit += this.#quantum;
    const last = this.#last;
    member.next = last ? last.next : member;
    if (last) last.next = member;
    this.#last = member;
    this.size++;
  }

  /** The current member has used some of its turn. */
  spend(cost: number): void {
    // Alone, there is nobody to be fair to.
    if (this.size < 2) return;
    const current = this.current as M;
    current.credit -= cost;
    if (current.credit <= 0) this.pass();
  }

  /** Ends the turn of the current member. Skips those that still pay for an earlier turn. */
  pass(): void {
    do {
      const over = this.current as M;
      over.credit = Math.min(over.credit, 0) + this.#quantum;
      this.#last = over;
    } while ((this.current as M).credit <= 0);
  }

  /** The current member has nothing more to do. It keeps its debt, and no credit. */
  leave(): void {
    const last = this.#last as M;
    const gone = last.next as M;
    if (gone === last) this.#last = undefined;
    else last.next = gone.next;
    gone.next = undefined;
    gone.credit = Math.min(gone.credit, 0);
    this.size--;
  }
}
