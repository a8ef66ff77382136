import type { RefusingLimit } from '../errors.ts';

/** What one tenant may use of one process. Read at each use, so that a change takes effect at once. */
export interface DialLimits {
  readonly dialsPerSecond: number;
  /** Dials at once after a quiet time: the size of the bucket. */
  readonly burst: number;
  /** Dials without an answer, and callers' streams that have yet to dial. */
  readonly pendingDials: number;
  /** Tunnels and dials without an answer. */
  readonly tunnels: number;
  /** Bytes that the tenant's tunnels read a second, both directions together. */
  readonly bytesPerSecond: number;
  /** Bytes that wait for readers that are slower than their senders. */
  readonly bytesQueued: number;
}

/** Of a process without tenants. */
export const UNLIMITED: DialLimits = {
  dialsPerSecond: Number.POSITIVE_INFINITY,
  burst: Number.POSITIVE_INFINITY,
  pendingDials: Number.POSITIVE_INFINITY,
  tunnels: Number.POSITIVE_INFINITY,
  bytesPerSecond: Number.POSITIVE_INFINITY,
  bytesQueued: Number.POSITIVE_INFINITY,
};

/** What a tenant uses now. */
export interface DialUse {
  readonly pendingDials: number;
  readonly tunnels: number;
  readonly bytesQueued: number;
  /** In the last full second. */
  readonly dialsPerSecond: number;
  /** In the last full second. 0 while no limit of bytes is set: nobody counts them by the second then. */
  readonly bytesPerSecond: number;
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

/** A token bucket whose rate may change between two uses. It begins full. */
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
    this.#turn();
    this.#count += count;
  }

  /** The count of the last full second. */
  get last(): number {
    this.#turn();
    return this.#before;
  }

  #turn(): void {
    const second = Math.floor(this.#now() / 1000);
    if (second === this.#second) return;
    this.#before = second === this.#second + 1 ? this.#count : 0;
    this.#count = 0;
    this.#second = second;
  }
}
