import { bufferSizes, type Clock, type SharedBudget } from '@isthmus/runtime';
import { Deadlines } from '../deadlines.ts';
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
  readonly sweep: Deadlines;
}

export function halvesOf(
  { timeoutMs, budget }: ResumeOptions,
  clock: Clock,
  base = bufferSizes.kept,
  most = TUNNEL.keptMostBytes,
): Halves {
  const keeping = { base, most, budget, ahead: Math.min(bufferSizes.ahead, base) };
  return { clock, timeoutMs, keeping, sweep: new Deadlines(clock) };
}

/** How many bytes the tunnels of a process may keep. */
interface Keeping {
  /** What each tunnel may always keep. */
  readonly base: number;
  /** The most that one tunnel may keep: as much can be under way on a long path. */
  readonly most: number;
  /** What all tunnels together may keep beyond `base` each. */
  readonly budget: SharedBudget;
  /** What may be written beyond the limit, or ahead of a carrier that has no room, before the writer has to wait. */
  readonly ahead: number;
}

/** How many bytes one half may keep. It grows when they are reached, as long as the process has room. */
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
