/** Tells that nobody waits for a dial's answer any more: an AbortSignal, or an Abandonment. */
export interface DialSignal {
  readonly aborted: boolean;
  /** Once it has aborted: why. */
  readonly reason: Error;
  addEventListener(type: 'abort', listener: () => void, options?: { readonly once: true }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/**
 * An AbortController that is its own signal. Three or four are made on the way of a dial, and hardly ever used: one with its
 * listener takes 0.2 µs of processor time, and node's 4 to 7.
 */
export class Abandonment implements DialSignal {
  readonly #listeners: (() => void)[] = [];
  #aborted = false;
  #reason: Error | undefined;

  get aborted(): boolean {
    return this.#aborted;
  }

  /** Made only for whoever asks, when `abort` was given none: an error's stack takes its time. */
  get reason(): Error {
    this.#reason ??= new Error('nobody waits any more');
    return this.#reason;
  }

  /** Calls each listener, once. They must not throw: what they would stop is more than one dial's. */
  abort(reason?: Error): void {
    if (this.#aborted) return;
    this.#aborted = true;
    this.#reason = reason;
    for (const listener of this.#listeners.splice(0)) listener();
  }

  addEventListener(_type: 'abort', listener: () => void): void {
    if (!this.#aborted) this.#listeners.push(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    const at = this.#listeners.indexOf(listener);
    if (at >= 0) this.#listeners.splice(at, 1);
  }
}
