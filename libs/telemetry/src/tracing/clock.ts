/** How far the two clocks may drift apart, in milliseconds. Date.now() has steps of one, and we must follow a clock that was set. */
const TOLERANCE = 2;

let offset = Date.now() - performance.now();

/**
 * Converts a time of `performance.now()` to milliseconds since the epoch, with fractions. All spans of the process share one offset:
 * if each began at Date.now(), a child of 0.3 ms would now and then begin before its parent.
 */
export function sinceEpoch(time: number): number {
  const before = performance.now();
  const now = Date.now() - before;
  // If the process was interrupted between the two readings, they say nothing.
  if (performance.now() - before < 1 && Math.abs(now - offset) > TOLERANCE) offset = now;
  return offset + time;
}
