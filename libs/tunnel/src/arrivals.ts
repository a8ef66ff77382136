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
    return new Promise((resolve, reject) => {
      const leave = () => {
        clearTimeout(timer);
        this.#waiting.delete(came);
        signal.removeEventListener('abort', gone);
      };
      const came = () => {
        leave();
        resolve();
      };
      const gone = () => {
        leave();
        reject(signal.reason);
      };
      const late = () => {
        leave();
        reject(this.#late());
      };
      const timer = setTimeout(late, Math.max(0, deadline - performance.now()));
      this.#waiting.add(came);
      signal.addEventListener('abort', gone);
      if (signal.aborted) gone();
    });
  }
}
