import { ConnectionError, ErrorCode } from '../codes.ts';

/** Period over which resets are counted, in milliseconds. */
const PERIOD_MS = 10_000;

/** Counts a connection's reset streams. Many are an attack (CVE-2023-44487), because opening one costs the attacker almost nothing. */
export class ResetCounter {
  readonly #maxResets: number;
  readonly #now: () => number;
  #since = Number.NEGATIVE_INFINITY;
  #resets = 0;

  /** @param most streams that may be reset in 10 seconds */
  constructor(most: number, now: () => number = () => performance.now()) {
    this.#maxResets = most;
    this.#now = now;
  }

  count(): void {
    const now = this.#now();
    if (now - this.#since > PERIOD_MS) {
      this.#since = now;
      this.#resets = 0;
    }
    this.#resets++;
  }

  /** Call after the frame is fully handled. @throws ConnectionError after too many */
  check(): void {
    if (this.#resets > this.#maxResets)
      throw new ConnectionError(
        ErrorCode.ENHANCE_YOUR_CALM,
        `more than ${this.#maxResets} streams were reset in a row`,
      );
  }
}
