/** How far the two clocks may drift apart, in milliseconds. Date.now() has steps of 1 ms. If the system clock is set, we must follow. */
const TOLERATED_DRIFT_MS = 2;

let offset = Date.now() - performance.now();

/**
 * Converts a time of `performance.now()` to milliseconds since the epoch, with fractions. All spans of the process share one offset.
 * If each span took its start from Date.now(), a child that lasts 0.3 ms would sometimes start before its parent.
 */
export function sinceEpoch(time: number): number {
  const before = performance.now();
  const now = Date.now() - before;
  // If the process was interrupted between the two readings, they are useless.
  if (performance.now() - before < 1 && Math.abs(now - offset) > TOLERATED_DRIFT_MS) offset = now;
  return offset + time;
}
