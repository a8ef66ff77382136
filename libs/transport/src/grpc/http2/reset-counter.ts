/**
 * Streams of one connection that may be reset in a window of time, by either side: more of them are an attack (CVE-2023-44487),
 * for a stream costs whoever opens it next to nothing.
 */
const MAX_RESETS = 300;
const WINDOW_MS = 10_000;

/** Counts a connection's resets. */
export class ResetCounter {
  static readonly most = MAX_RESETS;
  #since = 0;
  #resets = 0;

  get tooMany(): boolean {
    return this.#resets > MAX_RESETS;
  }

  count(): void {
    const now = performance.now();
    if (now - this.#since > WINDOW_MS) {
      this.#since = now;
      this.#resets = 0;
    }
    this.#resets++;
  }
}
