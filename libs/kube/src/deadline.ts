/** Combines a call's time limit and its caller's signal into one signal. Call `end`, or a timer stays. */
export class Deadline {
  /** Whether the time ran out, as opposed to an abort by the caller. */
  expired = false;
  readonly #controller = new AbortController();
  readonly #caller: AbortSignal | undefined;
  readonly #abort = () => this.#controller.abort();
  #timer: NodeJS.Timeout | undefined;
  #ms = 0;
  #at = 0;

  constructor(ms: number, caller: AbortSignal | undefined) {
    this.#caller = caller;
    this.extend(ms);
    if (caller?.aborted) this.#abort();
    // This listener is removed again. AbortSignal.any would keep references to signals that live as long as the program.
    else caller?.addEventListener('abort', this.#abort, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The last time limit set, in milliseconds. */
  get ms(): number {
    return this.#ms;
  }

  get leftMs(): number {
    return this.#at - performance.now();
  }

  /** Restarts the time limit from now. */
  extend(ms: number): void {
    clearTimeout(this.#timer);
    this.#ms = ms;
    this.#at = performance.now() + ms;
    this.#timer = setTimeout(() => {
      this.expired = true;
      this.#abort();
    }, ms);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener('abort', this.#abort);
  }
}
