/** How often is looked for what is due, in milliseconds. */
const LOOK_EVERY = 5;

/** Calls `act` so many times a second, whether the last call is over or not. */
export class AtRate {
  readonly #running = new Set<Promise<void>>();
  readonly #timer: NodeJS.Timeout;

  constructor(perSecond: number, act: (index: number) => Promise<void>) {
    const from = performance.now();
    let begun = 0;
    this.#timer = setInterval(() => {
      for (const due = ((performance.now() - from) / 1000) * perSecond; begun < due; ) {
        const running = act(begun++).finally(() => this.#running.delete(running));
        this.#running.add(running);
      }
    }, LOOK_EVERY);
  }

  /** Begins no more. Resolves when the last call is over. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await Promise.all(this.#running);
  }
}
