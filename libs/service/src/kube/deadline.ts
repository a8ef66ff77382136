/** The time that a call has, and its caller's own signal, as one signal. Ended by `end`, or a timer stays. */
export class Deadline {
  /** Whether time ran out, rather than the caller's patience. */
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
    // A listener that is taken off again: AbortSignal.any would hold on to signals that live as long as the program.
    else caller?.addEventListener('abort', this.#abort, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The length last set, in milliseconds. */
  get ms(): number {
    return this.#ms;
  }

  get leftMs(): number {
    return this.#at - performance.now();
  }

  /** Runs anew from now. */
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
