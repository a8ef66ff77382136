/** Fires when nobody waits for a dial's answer any more. An AbortSignal or a DialAbort. */
export interface DialSignal {
  readonly aborted: boolean;
  /** The reason, once aborted. */
  readonly reason: Error;
  addEventListener(type: 'abort', listener: () => void, options?: { readonly once: true }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/**
 * An AbortController that is its own signal. Each dial creates three or four of them and hardly ever fires one. Creating one and
 * adding a listener takes 0.2 µs of CPU time; Node's AbortController takes 4 to 7 µs.
 */
export class DialAbort implements DialSignal {
  readonly #listeners: (() => void)[] = [];
  #aborted = false;
  #reason: Error | undefined;

  get aborted(): boolean {
    return this.#aborted;
  }

  /** Created on demand if `abort` got no reason, because capturing an error's stack takes time. */
  get reason(): Error {
    this.#reason ??= new Error('nobody waits any more');
    return this.#reason;
  }

  /** Calls each listener once. Listeners must not throw: that would stop more than this dial. */
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
