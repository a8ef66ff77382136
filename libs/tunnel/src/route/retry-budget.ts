/**
 * Retries available at once after a quiet time. When a hub dies, each dial that was pending on it is retried once. This is as many as
 * one tenant may have pending (`MAX_PENDING_DIALS`), but all tenants of the gateway share it.
 */
const RETRY_BURST = 2000;

/** What each dial adds: in the long run, at most one attempt more for every five dials. */
const PER_DIAL = 0.2;

/**
 * Limits what a gateway tries beyond first attempts, so that it does not overload a plane in trouble. A gateway has one for retries, and
 * one for hedges.
 */
export class RetryBudget {
  #tokens = RETRY_BURST;

  /** Call this once per dial. */
  earn(): void {
    this.#tokens = Math.min(RETRY_BURST, this.#tokens + PER_DIAL);
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
