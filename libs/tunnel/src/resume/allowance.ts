import type { SharedBudget } from '@isthmus/runtime';

/** How many bytes the tunnels of a process may keep. */
export interface Keeping {
  /** What each tunnel may always keep. */
  readonly base: number;
  /** The most that one tunnel may keep: as much can be under way on a long path. */
  readonly most: number;
  /** What all tunnels together may keep beyond `base` each. */
  readonly budget: SharedBudget;
}

/** How many bytes one half may keep. It grows while the other half acknowledges late, as long as the process has room. */
export class Allowance {
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

  /** Doubles the allowance. @returns false if that would be too much */
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
