import { systemClock } from '@isthmus/runtime';

/** How much longer than the round trips of its links a path may take, as a multiple of them. Round trips vary. */
const ROUND_TRIPS = 2;

/** Waits for the first word from the agent behind a path: for a time that any path gets, and for the round trips of this one. */
export class SignOfLife {
  readonly #ms: number;
  readonly #silent: () => void;
  readonly #after: typeof systemClock.after;
  #cancel: (() => void) | undefined;

  /**
   * @param ms how long it waits on a path without round-trip times, in milliseconds
   * @param silent called once, if nothing came in time
   */
  constructor(ms: number, silent: () => void, after = systemClock.after) {
    this.#ms = ms;
    this.#silent = silent;
    this.#after = after;
    this.#await(ms);
  }

  /** A link passes the request on. @param roundTripMs the link's round-trip time */
  underWay(roundTripMs: number): void {
    if (!this.#cancel) return;
    this.#cancel();
    this.#await(this.#ms + ROUND_TRIPS * roundTripMs);
  }

  /** It came, or nobody waits for it any more. */
  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #await(ms: number): void {
    this.#cancel = this.#after(ms, () => {
      this.#cancel = undefined;
      this.#silent();
    });
  }
}
