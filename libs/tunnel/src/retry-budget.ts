/**
 * What may be spent at once, when nothing was for a while: when a hub dies, each dial that was pending on it is tried once more,
 * and of one tenant there may be so many (`Admission`).
 */
const BURST = 2000;

/** What each dial adds: so, in the long run, at most one dial in five is tried again. */
const PER_DIAL = 0.2;

/** Bounds how often dials are tried again, so that a plane in trouble is not hammered by its own retries. */
export class RetryBudget {
  #tokens = BURST;

  /** To be called once a dial. */
  earn(): void {
    this.#tokens = Math.min(BURST, this.#tokens + PER_DIAL);
  }

  /** Whether there is no retry left. */
  get spent(): boolean {
    return this.#tokens < 1;
  }

  /** Takes one retry out of the budget, if there is one. */
  spend(): boolean {
    if (this.spent) return false;
    this.#tokens--;
    return true;
  }
}
