import { bufferSizes, type Clock, type SharedBudget } from '@isthmus/runtime';
import { TUNNEL } from '../defaults.ts';

export interface ResumeOptions {
  /** How long a detached tunnel waits for a new carrier, in milliseconds. */
  readonly timeoutMs: number;
  /** The process's memory for tunnels whose other end acknowledges late. */
  readonly budget: SharedBudget;
}

/** What the halves of a process have in common. */
export interface Halves {
  readonly clock: Clock;
  /** How long a half waits for a new carrier, in milliseconds. */
  readonly timeoutMs: number;
  /** How much each may keep. Both sides must have the same `most`. */
  readonly keeping: Keeping;
  /** Halves that have a mark to send that is not urgent, or a deadline. */
  readonly sweep: Sweep;
}

/** How many taken bytes a half acknowledges at once. @param waiting halves that wait for the sweep: at least those with unacknowledged bytes */
export function acknowledgedAtOnce(waiting: number): number {
  return Math.min(
    TUNNEL.acknowledgeMostBytes,
    Math.max(TUNNEL.acknowledgeLeastBytes, TUNNEL.acknowledgeSharedBytes / waiting),
  );
}

export function halvesOf(
  { timeoutMs, budget }: ResumeOptions,
  clock: Clock,
  base = bufferSizes.kept,
  most = TUNNEL.keptMostBytes,
): Halves {
  return { clock, timeoutMs, keeping: { base, most, budget }, sweep: new Sweep(clock, TUNNEL.acknowledgeMs) };
}

/** How many bytes the tunnels of a process may keep. */
interface Keeping {
  /** What each tunnel may always keep. */
  readonly base: number;
  /** The most that one tunnel may keep: as much can be under way on a long path. */
  readonly most: number;
  /** What all tunnels together may keep beyond `base` each. */
  readonly budget: SharedBudget;
}

/** How many bytes one half may keep, or hold. It grows when they are reached, as long as the process has room. */
export class GrowingLimit {
  readonly #keeping: Keeping;
  readonly #group: string;
  #lent = 0;

  /** @param group who uses the budget: a tenant */
  constructor(keeping: Keeping, group: string) {
    this.#keeping = keeping;
    this.#group = group;
  }

  get bytes(): number {
    return this.#keeping.base + this.#lent;
  }

  /** Doubles the limit. @returns false if that would be too much */
  grow(): boolean {
    const { most, budget } = this.#keeping;
    const more = Math.min(this.bytes, most - this.bytes);
    if (more <= 0 || !budget.take(more, this.#group)) return false;
    this.#lent += more;
    return true;
  }

  /** Gives back what it grew by. */
  shrink(): void {
    if (this.#lent === 0) return;
    this.#keeping.budget.give(this.#lent, this.#group);
    this.#lent = 0;
  }
}

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
    this.#clock.after(this.#halfMs, () => this.#pass());
  }

  #pass(): void {
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
