import type { SharedBudget } from '@isthmus/runtime';

/** How much the tunnels of a process may keep. */
export interface Keeping {
  /** Bytes that a tunnel may keep in any case. */
  readonly base: number;
  /** Bytes that it may keep at most: so much may be under way on a long path. */
  readonly most: number;
  /** What all tunnels may keep beyond that. */
  readonly budget: SharedBudget;
}

/** How many bytes one half may keep. It grows while the other half acknowledges late, as far as the process has room. */
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

  /** Doubles it. @returns false if that is too much */
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
