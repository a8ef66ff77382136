/** Events queued for one watcher: some seconds of a busy gateway. */
const MAX_WAITING = 1000;

/** An event for a watcher, and the number of events dropped before it. */
export interface Told<T> {
  readonly event: T | undefined;
  readonly lost: number;
}

/**
 * A queue of events for one watcher. The emitter never waits. Events that a slow watcher cannot take are dropped, and counted in the
 * next one it gets.
 */
export class Watch<T> {
  readonly #waiting: Told<T>[] = [];
  readonly #most: number;
  #lost = 0;
  #wake = () => {};

  constructor(most: number = MAX_WAITING) {
    this.#most = most;
  }

  tell(event: T): void {
    if (this.#waiting.length >= this.#most) {
      this.#lost++;
      return;
    }
    this.#waiting.push({ event, lost: this.#lost });
    this.#lost = 0;
    this.#wake();
  }

  /** Yields all events until `signal` aborts. */
  async *until(signal: AbortSignal): AsyncGenerator<Told<T>> {
    const wake = () => this.#wake();
    signal.addEventListener('abort', wake, { once: true });
    try {
      while (!signal.aborted) {
        yield* this.#take();
        if (signal.aborted || this.#waiting.length > 0) continue;
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    } finally {
      signal.removeEventListener('abort', wake);
    }
  }

  *#take(): Generator<Told<T>> {
    for (let next = this.#waiting.shift(); next; next = this.#waiting.shift()) yield next;
    if (this.#lost === 0) return;
    const lost = this.#lost;
    this.#lost = 0;
    yield { event: undefined, lost };
  }
}
