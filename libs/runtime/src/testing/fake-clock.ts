import type { Clock } from '../clock.ts';

interface Timer {
  readonly at: number;
  readonly run: () => void;
}

/** A clock that moves only in `run`. Its random numbers come from a seed. */
export class FakeClock implements Clock {
  #now = 0;
  #seed: number;
  /** The next one last. Of those at one time, the one that was set first runs first. */
  readonly #timers: Timer[] = [];

  constructor(seed = 1) {
    this.#seed = seed;
  }

  readonly now = () => this.#now;

  /** Lehmer's generator with the multiplier of Park and Miller. */
  readonly random = () => {
    this.#seed = (this.#seed * 48_271) % 2_147_483_647;
    return this.#seed / 2_147_483_647;
  };

  after(ms: number, run: () => void): () => void {
    const timer = { at: this.#now + ms, run };
    this.#timers.splice(this.#placeOf(timer.at), 0, timer);
    return () => {
      const index = this.#timers.indexOf(timer, this.#placeOf(timer.at));
      if (index >= 0) this.#timers.splice(index, 1);
    };
  }

  /** Calls what falls due, in order, and lets promises settle after each call. */
  async run(ms: number): Promise<void> {
    const end = this.#now + ms;
    await settle();
    for (let next = this.#timers.at(-1); next && next.at < end; next = this.#timers.at(-1)) {
      this.#timers.pop();
      this.#now = Math.max(this.#now, next.at);
      next.run();
      await settle();
    }
    this.#now = end;
  }

  /** Returns the index of the first timer that runs at this time or earlier. A search by halves: a fleet has thousands of timers. */
  #placeOf(at: number): number {
    let [low, high] = [0, this.#timers.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#timers[middle] as Timer).at > at) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Lets promises that are ready run their course. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
