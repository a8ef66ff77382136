import { setTimeout as sleep } from 'node:timers/promises';

/** Work that repeats until it is stopped. */
export interface Periodic {
  /** Interrupts the work and resolves when it has ended. */
  stop(): Promise<void>;
}

/**
 * Runs `work` at once and again after as many milliseconds as it returned, until stopped. Rounds never overlap. Work that
 * rejects ends nothing but its round.
 */
export function periodic(work: (signal: AbortSignal) => Promise<number>, failed: (error: unknown) => number): Periodic {
  const controller = new AbortController();
  const { signal } = controller;
  const round = () => work(signal).catch((error) => (signal.aborted ? 0 : failed(error)));
  const run = async () => {
    while (!signal.aborted) {
      const delay = await round();
      // An aborted sleep rejects; that is the end, not a failure.
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
