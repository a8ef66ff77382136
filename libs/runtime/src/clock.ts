/** Time and randomness, so that a test can control both. */
export interface Clock {
  /** In milliseconds. Only differences have a meaning. */
  now(): number;
  /** 0 or more, less than 1. */
  random(): number;
  /** Calls back once. Returns a function that cancels it. */
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
