import type { DialRequest } from './dial.ts';
import type { DialError } from './errors.ts';

/** Dials that wait until there is a way to anybody who can take them. */
export class Arrivals {
  readonly #late: () => DialError;
  readonly #waiting = new Set<() => void>();

  /** @param late why a dial failed whose deadline came first */
  constructor(late: () => DialError) {
    this.#late = late;
  }

  /** There is a way now. */
  came(): void {
    for (const came of [...this.#waiting]) came();
  }

  /** Resolves when there is a way. Rejects at the deadline, or when whoever waits has gone. */
  next({ deadline, signal }: Pick<DialRequest, 'deadline' | 'signal'>): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const gone = () => reject(signal.reason);
    const timer = setTimeout(() => reject(this.#late()), Math.max(0, deadline - performance.now()));
    this.#waiting.add(resolve);
    signal.addEventListener('abort', gone);
    if (signal.aborted) gone();
    return promise.finally(() => {
      clearTimeout(timer);
      this.#waiting.delete(resolve);
      signal.removeEventListener('abort', gone);
    });
  }
}
