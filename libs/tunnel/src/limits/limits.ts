import { DialError, type RefusingLimit } from '../dial/errors.ts';

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

/** @param retryAfter in seconds */
export function overLimit(tenant: string, limit: RefusingLimit, limits: DialLimits, retryAfter = 1): DialError {
  const text =
    `tenant ${tenant} has reached its limit ${limit} of ${limits[limit]}: ` +
    `dial again after ${retryAfter} s, or raise it in the tenant's file`;
  return new DialError('connection_limit_reached', text, { limit, retryAfter });
}
