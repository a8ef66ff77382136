/**
 * Retries available at once after a quiet time. When a hub dies, each dial that was pending on it is retried once, and one tenant
 * may have this many pending (`Admission`).
 */
const BURST = 2000;

/** What each dial adds: in the long run, at most one dial in five is retried. */
const PER_DIAL = 0.2;

/** Limits retries, so that a plane in trouble is not hammered by its own retries. */
export class RetryBudget {
  #tokens = BURST;

  /** Call this once per dial. */
  earn(): void {
    this.#tokens = Math.min(BURST, this.#tokens + PER_DIAL);
  }

  /** Whether no retry is left. */
  get spent(): boolean {
    return this.#tokens < 1;
  }

  /** Takes one retry out of the budget. @returns false if none was left */
  spend(): boolean {
    if (this.spent) return false;
    this.#tokens--;
    return true;
  }
}
