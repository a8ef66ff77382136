import { ConnectionError, ErrorCode, MAX_WINDOW } from '../codes.ts';
import { DEFAULT_SETTINGS } from '../settings.ts';

/**
 * The initial send window of all streams. Streams store their windows relative to it, so a change (RFC 9113 section 6.9.2) affects
 * all of them at once. The only work per stream, once a turn, is to wake streams that may send again.
 */
export class InitialWindow {
  readonly #wake: () => void;
  readonly #windows: () => Iterable<SendWindow>;
  #size = DEFAULT_SETTINGS.initialWindowSize;
  /** No open stream was given more than this beyond the initial window. It may be too high, until `#recount` has looked at all streams. */
  #most = 0;
  #due = false;

  /**
   * @param wake makes streams that wait for their windows check again
   * @param windows those of the open streams
   */
  constructor(wake: () => void, windows: () => Iterable<SendWindow>) {
    this.#wake = wake;
    this.#windows = windows;
  }

  get size(): number {
    return this.#size;
  }

  /** Records how much a stream has been given beyond the initial window. */
  exceeded(bytes: number): void {
    if (bytes > this.#most) this.#most = bytes;
  }

  /** @throws ConnectionError if a stream's window would exceed the largest window */
  resize(size: number): void {
    if (size + this.#most > MAX_WINDOW) this.#recount();
    if (size + this.#most > MAX_WINDOW)
      throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, `streams' windows beyond ${MAX_WINDOW}`);
    const grows = size > this.#size;
    this.#size = size;
    if (!grows || this.#due) return;
    this.#due = true;
    setImmediate(() => {
      this.#due = false;
      this.#wake();
    });
  }

  #recount(): void {
    this.#most = 0;
    for (const { more } of this.#windows()) this.exceeded(more);
  }
}

/** The send window of one stream. */
export class SendWindow {
  readonly #initial: InitialWindow;
  /** Bytes given beyond the initial window, minus bytes sent. */
  #more = 0;

  constructor(initial: InitialWindow) {
    this.#initial = initial;
  }

  /** In bytes; below 0 when the initial window has shrunk since. */
  get size(): number {
    return this.#initial.size + this.#more;
  }

  /** The part of it beyond the initial window. */
  get more(): number {
    return this.#more;
  }

  sent(bytes: number): void {
    this.#more -= bytes;
  }

  /** Enlarges the window. @returns false if it would exceed the largest window (section 6.9.1) */
  widen(bytes: number): boolean {
    this.#more += bytes;
    this.#initial.exceeded(this.#more);
    return this.size <= MAX_WINDOW;
  }
}
