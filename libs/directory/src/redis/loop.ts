import { Backoff } from '@isthmus/runtime';
import { DIRECTORY } from '../defaults.ts';
import type { StateListener } from '../registry.ts';

/** A pause that can be cut short. A ring while nobody waits cuts the next pause short. */
export class Alarm {
  #rung = false;
  #wake: (() => void) | undefined;

  ring(): void {
    this.#rung = true;
    this.#wake?.();
  }

  async wait(ms: number): Promise<void> {
    if (!this.#rung && ms > 0) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = setTimeout(resolve, ms);
      this.#wake = resolve;
      await promise;
      clearTimeout(timer);
    }
    this.#wake = undefined;
    this.#rung = false;
  }
}

/**
 * The health of one loop that uses the store. It tells a listener when the health changes, and returns how long to pause after a
 * failure. A flapping store is reported at most once a second. Nothing is lost, because each round of the loop reports its state again.
 */
export class Health {
  readonly #listener: StateListener | undefined;
  readonly #backoff: Backoff;
  #up: boolean | undefined;
  #detail = '';
  #toldAt = Number.NEGATIVE_INFINITY;

  constructor(listener: StateListener | undefined) {
    this.#listener = listener;
    this.#backoff = new Backoff(DIRECTORY.firstPauseMs, DIRECTORY.backoffCapMs);
  }

  /** The store has answered, and nothing was reported yet. What follows may take a while. */
  begun(detail: string): void {
    if (this.#up === undefined) this.#tell(true, detail, 0);
  }

  up(detail: string): void {
    this.#backoff.reset();
    if (this.#up !== true) this.#tell(true, detail, DIRECTORY.reportMs);
  }

  /** Reports a detail while the store answers. @returns false if it is too soon after the last report */
  note(detail: string): boolean {
    return this.#tell(true, detail, detail === this.#detail ? DIRECTORY.repeatMs : DIRECTORY.reportMs);
  }

  /** Records a failure. Returns how long to pause before the next attempt, in milliseconds. */
  down(error: unknown): number {
    const detail = error instanceof Error ? error.message : String(error);
    if (this.#up !== false) this.#tell(false, detail, DIRECTORY.reportMs);
    else if (detail !== this.#detail) this.#tell(false, detail, DIRECTORY.repeatMs);
    return this.#backoff.next();
  }

  /** Reports the final state, however recent the last report is. */
  final(detail: string): void {
    this.#tell(false, detail, 0);
  }

  #tell(up: boolean, detail: string, quietMs: number): boolean {
    const now = performance.now();
    if (now - this.#toldAt < quietMs) return false;
    this.#up = up;
    this.#detail = detail;
    this.#toldAt = now;
    this.#listener?.(up, detail);
    return true;
  }
}
