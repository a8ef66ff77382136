import { performance } from 'node:perf_hooks';

/**
 * Returns a function that says which share of its time the event loop was busy since the last call, 0 to 1. The loop counts as busy while
 * it waits for a processor. Deno 2.9 always says 0.
 */
export function loopUse(): () => number {
  let last = performance.eventLoopUtilization();
  return () => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, last);
    last = now;
    return utilization;
  };
}
