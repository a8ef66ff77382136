/** What may be spent at once, when nothing was for a while. */
const BURST = 100;

/** What each dial adds: so, in the long run, at most one dial in five is tried again. */
const PER_DIAL = 0.2;

/** Bounds how often dials are tried again, so that a plane in trouble is not hammered by its own retries. */
export class RetryBudget {
  #tokens = BURST;

  /** To be called once a dial. */
  earn(): void {
    this.#tokens = Math.min(BURST, this.#tokens + PER_DIAL);
  }

  /** Takes one retry out of the budget, if there is one. */
  spend(): boolean {
    if (this.#tokens < 1) return false;
    this.#tokens--;
    return true;
  }
}
