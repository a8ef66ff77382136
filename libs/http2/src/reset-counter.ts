import { ConnectionError, ErrorCode } from './codes.ts';

/** Resets are counted over so long, in milliseconds. */
const PERIOD = 10_000;

/** Counts the streams of a connection that come to nothing: many are an attack (CVE-2023-44487), for one costs whoever opens it next to nothing. */
export class ResetCounter {
  readonly #most: number;
  readonly #now: () => number;
  #since = Number.NEGATIVE_INFINITY;
  #resets = 0;

  /** @param most that may be reset in 10 seconds */
  constructor(most: number, now: () => number = () => performance.now()) {
    this.#most = most;
    this.#now = now;
  }

  count(): void {
    const now = this.#now();
    if (now - this.#since > PERIOD) {
      this.#since = now;
      this.#resets = 0;
    }
    this.#resets++;
  }

  /** To be called where nothing of a frame is left to be done. @throws ConnectionError when there were too many */
  check(): void {
    if (this.#resets > this.#most)
      throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, `more than ${this.#most} streams were reset in a row`);
  }
}
