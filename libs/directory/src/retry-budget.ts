import { LruMap } from '@isthmus/runtime';

/**
 * Retries of a tenant available at once after a quiet time. When a hub dies, each dial that was pending on it is retried once. This is as
 * many as one tenant may have pending (`MAX_PENDING_DIALS`).
 */
const RETRY_BURST = 2000;

/** The same of all tenants together: several may lose a hub at once, and none can take all. */
const ALL_BURST = 10_000;

/** What each dial adds to both: in the long run, at most one attempt more for every five dials. */
const PER_DIAL = 0.2;

/** Tenants that have used up some of their retries. One that is forgotten has all of them again, as after a quiet time. */
const TENANTS = 10_000;

/**
 * Limits what a gateway tries beyond first attempts, so that it does not overload a plane in trouble. A gateway has one for retries, and
 * one for hedges. Each tenant has its own share, so that one whose agents fail takes none of another's.
 */
export class RetryBudget {
  #left = ALL_BURST;
  /** What is left to those that have not all of theirs. */
  readonly #lefts = new LruMap<string, number>(TENANTS);

  /** Call this once per dial. */
  earn(tenant: string): void {
    this.#left = Math.min(ALL_BURST, this.#left + PER_DIAL);
    if (this.#lefts.has(tenant)) this.#set(tenant, this.#of(tenant) + PER_DIAL);
  }

  /** Whether no retry is left. */
  spent(tenant: string): boolean {
    return this.#left < 1 || this.#of(tenant) < 1;
  }

  /** Takes one retry out of the budget. @returns false if none was left */
  spend(tenant: string): boolean {
    if (this.spent(tenant)) return false;
    this.#left--;
    this.#set(tenant, this.#of(tenant) - 1);
    return true;
  }

  #of(tenant: string): number {
    return this.#lefts.get(tenant) ?? RETRY_BURST;
  }

  #set(tenant: string, left: number): void {
    if (left >= RETRY_BURST) this.#lefts.delete(tenant);
    else this.#lefts.set(tenant, left);
  }
}
