/**
 * Waiting items by source. Sources take turns, however many items each has. Within a source, a random item is next: if honest items and
 * junk come from one address, neither order of arrival would ever reach the honest ones during a flood.
 */
export class Turns<T extends object> {
  readonly #random: () => number;
  /** In order of turns. */
  readonly #queues = new Map<string, T[]>();
  #size = 0;

  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  get size(): number {
    return this.#size;
  }

  add(asker: string, item: T): void {
    const queue = this.#queues.get(asker);
    if (queue) queue.push(item);
    else this.#queues.set(asker, [item]);
    this.#size++;
  }

  next(): T | undefined {
    for (const [asker, queue] of this.#queues) {
      const item = this.#taken(queue, Math.floor(this.#random() * queue.length));
      this.#queues.delete(asker);
      // Behind all others.
      if (queue.length > 0) this.#queues.set(asker, queue);
      return item;
    }
    return undefined;
  }

  delete(asker: string, item: T): boolean {
    const queue = this.#queues.get(asker);
    const place = queue?.indexOf(item) ?? -1;
    if (!queue || place < 0) return false;
    this.#taken(queue, place);
    if (queue.length === 0) this.#queues.delete(asker);
    return true;
  }

  #taken(queue: T[], place: number): T {
    const item = queue[place] as T;
    const last = queue.pop() as T;
    if (last !== item) queue[place] = last;
    this.#size--;
    return item;
  }
}
