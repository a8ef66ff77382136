import type { Clock } from '@isthmus/runtime';

interface Due {
  readonly at: number;
  readonly order: number;
  run: (() => void) | undefined;
}

/** A clock that runs its callbacks one after another, without waiting. Its random numbers come from a seed. */
export class SeededTime implements Clock {
  #now = 0;
  #seed: number;
  #order = 0;
  /** A heap: each entry is due no later than the two below it. */
  readonly #heap: Due[] = [];

  /** @param seed 1 to 2^31 - 2 */
  constructor(seed: number) {
    this.#seed = seed;
    // Neighbouring seeds begin alike.
    for (let i = 0; i < 5; i++) this.random();
  }

  readonly now = () => this.#now;

  /** Lehmer's generator with the multiplier of Park and Miller. */
  readonly random = () => {
    this.#seed = (this.#seed * 48_271) % 2_147_483_647;
    return this.#seed / 2_147_483_647;
  };

  /** A whole number from 0, below `end`. */
  below(end: number): number {
    return Math.floor(this.random() * end);
  }

  chance(probability: number): boolean {
    return this.random() < probability;
  }

  after(ms: number, run: () => void): () => void {
    const due: Due = { at: this.#now + ms, order: this.#order++, run };
    this.#push(due);
    return () => {
      due.run = undefined;
    };
  }

  /** Runs until nothing is due any more, or until a time. @returns whether nothing is due */
  run(until: number): boolean {
    for (let next = this.#heap[0]; next; next = this.#heap[0]) {
      if (next.at > until) return false;
      this.#pop();
      this.#now = next.at;
      next.run?.();
    }
    return true;
  }

  #push(due: Due): void {
    const heap = this.#heap;
    let index = heap.push(due) - 1;
    for (let above = (index - 1) >> 1; index > 0 && earlier(due, heap[above] as Due); above = (index - 1) >> 1) {
      heap[index] = heap[above] as Due;
      heap[above] = due;
      index = above;
    }
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop() as Due;
    if (heap.length === 0) return;
    heap[0] = last;
    for (let index = 0; ; ) {
      const [left, right] = [2 * index + 1, 2 * index + 2];
      if (left >= heap.length) return;
      const below = right < heap.length && earlier(heap[right] as Due, heap[left] as Due) ? right : left;
      if (earlier(last, heap[below] as Due)) return;
      heap[index] = heap[below] as Due;
      heap[below] = last;
      index = below;
    }
  }
}

function earlier(one: Due, other: Due): boolean {
  return one.at < other.at || (one.at === other.at && one.order < other.order);
}
