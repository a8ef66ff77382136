import { type RefusingLimit, TENANT_LIMITS, type TenantLimits, type UsedLimit } from './table.ts';

/** Of a process without tenants. */
export const UNLIMITED = Object.fromEntries(
  Object.keys(TENANT_LIMITS).map((name) => [name, Number.POSITIVE_INFINITY]),
) as TenantLimits;

/**
 * What a tenant uses now; of a rate, in the last full second. `bytesPerSecond` is 0 while it is not limited: nobody counts them by the second
 * then.
 */
export interface DialUse extends Readonly<Record<UsedLimit, number>> {
  /** Since the tenant was first seen; how the rates are used. */
  readonly dials: number;
  readonly bytes: number;
  /** Dials that were refused, by limit. */
  readonly refused: ReadonlyMap<RefusingLimit, number>;
}

/** How fast a bucket fills, and how much fits into it. */
export interface TokenRate {
  readonly perSecond: number;
  readonly atOnce: number;
}

/**
 * A token bucket whose size and rate may change between two uses, as a tenant's limits do. It begins full. `Allowance` of libs/wire is for what
 * comes by the frame: its size and rate are fixed, so it seldom looks at the clock.
 */
export class TokenBucket {
  readonly #now: () => number;
  #left = Number.POSITIVE_INFINITY;
  #since: number;

  /** @param now milliseconds */
  constructor(now: () => number) {
    this.#now = now;
    this.#since = now();
  }

  /** Returns what may be spent now; below 0 after more was spent. */
  left({ perSecond, atOnce }: TokenRate): number {
    const now = this.#now();
    const earned = ((now - this.#since) / 1000) * perSecond;
    this.#since = now;
    this.#left = perSecond === Number.POSITIVE_INFINITY ? atOnce : Math.min(atOnce, this.#left + earned);
    return this.#left;
  }

  /** Spends a cost, or nothing if less is left. */
  take(cost: number, rate: TokenRate): boolean {
    if (this.left(rate) < cost) return false;
    this.#left -= cost;
    return true;
  }

  /** Spends a cost that cannot be refused, and returns what is left. */
  charge(cost: number, rate: TokenRate): number {
    this.left(rate);
    this.#left -= cost;
    return this.#left;
  }
}

/** Counts what happens within each second of the clock. */
export class PerSecond {
  readonly #now: () => number;
  #second = 0;
  #count = 0;
  #before = 0;

  /** @param now milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  add(count: number): void {
    this.#next();
    this.#count += count;
  }

  /** The count of the last full second. */
  get last(): number {
    this.#next();
    return this.#before;
  }

  #next(): void {
    const second = Math.floor(this.#now() / 1000);
    if (second === this.#second) return;
    this.#before = second === this.#second + 1 ? this.#count : 0;
    this.#count = 0;
    this.#second = second;
  }
}
