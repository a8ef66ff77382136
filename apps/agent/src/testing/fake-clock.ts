import type { Clock } from '../clock.ts';

/** A clock that stands until it is told to run. Numbers at random come from a seed. */
export class FakeClock implements Clock {
  #now = 0;
  #seed: number;
  readonly #timers = new Map<number, { readonly at: number; readonly run: () => void }>();
  #ids = 0;

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
    const id = ++this.#ids;
    this.#timers.set(id, { at: this.#now + ms, run });
    return () => this.#timers.delete(id);
  }

  /** Runs everything that falls due, in order, and lets what it began settle each time. */
  async run(ms: number): Promise<void> {
    const end = this.#now + ms;
    await settle();
    for (;;) {
      const [id, next] = [...this.#timers].reduce((a, b) => (b[1].at < a[1].at ? b : a), [0, { at: end, run() {} }]);
      if (id === 0) break;
      this.#timers.delete(id);
      this.#now = Math.max(this.#now, next.at);
      next.run();
      await settle();
    }
    this.#now = end;
  }
}

/** Lets promises that are ready run their course. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
