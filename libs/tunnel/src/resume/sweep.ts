import type { Clock } from '@isthmus/runtime';

/**
 * An item of a sweep, which is also a link of a chain. A Set of items that come and go with every dial would leave garbage in the old
 * generation.
 */
export interface Swept {
  before: Swept | undefined;
  behind: Swept | undefined;
  /** Called when it has waited for long enough. It has then left the sweep. */
  remind(): void;
}

/** Reminds its items after half of a time to all of it. One timer serves them all, because most leave before. */
export class Sweep {
  readonly #clock: Clock;
  readonly #halfMs: number;
  #young = new Chain();
  #old = new Chain();
  #runs = false;
  #size = 0;

  constructor(clock: Clock, ms: number) {
    this.#clock = clock;
    this.#halfMs = ms / 2;
  }

  /** How many items are in it. */
  get size(): number {
    return this.#size;
  }

  enter(one: Swept): void {
    if (one.before) return;
    this.#size++;
    this.#young.add(one);
    if (this.#runs) return;
    this.#runs = true;
    this.#later();
  }

  leave(one: Swept): void {
    const { before, behind } = one;
    if (!before || !behind) return;
    this.#size--;
    before.behind = behind;
    behind.before = before;
    one.before = undefined;
    one.behind = undefined;
  }

  #later(): void {
    this.#clock.after(this.#halfMs, () => this.#turn());
  }

  #turn(): void {
    const due = this.#old;
    for (let one = due.first; one; one = due.first) {
      this.leave(one);
      one.remind();
    }
    this.#old = this.#young;
    this.#young = due;
    this.#runs = this.#old.first !== undefined;
    if (this.#runs) this.#later();
  }
}

/** A ring of items, and of itself. */
class Chain implements Swept {
  before: Swept = this;
  behind: Swept = this;

  get first(): Swept | undefined {
    return this.behind === this ? undefined : this.behind;
  }

  add(one: Swept): void {
    const last = this.before;
    one.before = last;
    one.behind = this;
    last.behind = one;
    this.before = one;
  }

  remind(): void {}
}
