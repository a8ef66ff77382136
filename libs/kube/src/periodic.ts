import { setTimeout as sleep } from 'node:timers/promises';

/** Work that repeats until stopped. */
export interface Periodic {
  /** Interrupts the work and resolves when it has ended. */
  stop(): Promise<void>;
}

/**
 * Runs `work` at once, and again after as many milliseconds as it returned, until stopped. Rounds never overlap. If `work` rejects,
 * only its round ends: `failed` then returns the delay.
 */
export function periodic(work: (signal: AbortSignal) => Promise<number>, failed: (error: unknown) => number): Periodic {
  const controller = new AbortController();
  const { signal } = controller;
  const round = () => work(signal).catch((error) => (signal.aborted ? 0 : failed(error)));
  const run = async () => {
    while (!signal.aborted) {
      const delay = await round();
      // An aborted sleep rejects. That is the end, not a failure.
      await sleep(delay, undefined, { signal }).catch(() => {});
    }
  };
  const done = run();
  return {
    stop() {
      controller.abort();
      return done;
    },
  };
}
