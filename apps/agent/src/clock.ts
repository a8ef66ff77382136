/** Time and chance, so that a test can hold both still. */
export interface Clock {
  /** Milliseconds; only differences mean anything. */
  now(): number;
  /** 0 or more, less than 1. */
  random(): number;
  /** Calls back once. @returns calls it off */
  after(ms: number, run: () => void): () => void;
}

export const systemClock: Clock = {
  now: () => performance.now(),
  random: Math.random,
  after(ms, run) {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
};
