import type { Families } from '../exposition/families.ts';

/**
 * Time between two samples, in milliseconds. A delay that callers notice takes as long. Each sample wakes a process that would sleep: every
 * 20 ms, that was half of what an idle agent or hub cost its node.
 */
const SAMPLE_INTERVAL_MS = 100;

/** The most samples that one delay counts for, so that a process that was stopped for an hour reports it and goes on. */
const MOST_MISSED = 600;

/** In seconds. A Node timer is up to one millisecond late even if nothing else runs. */
const BUCKETS = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/**
 * Measures with a timer how long ready work waits for its turn in the event loop. perf_hooks' `monitorEventLoopDelay` does not fit: its
 * quantiles can neither be added up nor read by two scrapers, and in Deno 2.9 it is only a stub.
 *
 * While the loop is blocked the timer does not run either, so one long delay also counts for the samples missed during it. A delay of
 * 1 s counts as 1 s, 0.9 s, and so on.
 *
 * @returns a function that stops it
 */
export function eventLoopDelay(families: Families, now = () => performance.now()): () => void {
  const delays = families.histogram(
    'event_loop_delay_seconds',
    'Delay of the event loop, sampled every 100 ms. While the event loop is blocked, all tunnels of the process wait.',
    BUCKETS,
  );
  let due = now() + SAMPLE_INTERVAL_MS;
  const timer = setInterval(() => {
    const at = now();
    const delay = Math.max(0, at - due);
    const looks = 1 + Math.min(Math.floor(delay / SAMPLE_INTERVAL_MS), MOST_MISSED);
    for (let look = 0; look < looks; look++) delays.observe((delay - look * SAMPLE_INTERVAL_MS) / 1000);
    due = at + SAMPLE_INTERVAL_MS;
  }, SAMPLE_INTERVAL_MS);
  // The timer must not keep the process alive.
  timer.unref();
  return () => clearInterval(timer);
}
