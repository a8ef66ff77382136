/** How far the two clocks may come apart, in milliseconds: Date.now() has no finer step than one, and a clock that was set is followed. */
const TOLERANCE = 2;

let offset = Date.now() - performance.now();

/**
 * A time of `performance.now()` as milliseconds since the epoch, with its fractions. One offset for all spans of the process:
 * were each to begin at Date.now(), a child of 0.3 ms would now and then begin before its parent.
 */
export function sinceEpoch(time: number): number {
  const before = performance.now();
  const now = Date.now() - before;
  // A process that was interrupted between the two has learnt nothing.
  if (performance.now() - before < 1 && Math.abs(now - offset) > TOLERANCE) offset = now;
  return offset + time;
}
