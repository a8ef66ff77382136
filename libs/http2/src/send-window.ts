import { ConnectionError, ErrorCode, MAX_WINDOW } from './codes.ts';
import { DEFAULT_SETTINGS } from './settings.ts';

/**
 * What the other side takes on each stream before it gives more. Streams' windows stand relative to it, so that a change
 * (RFC 9113 section 6.9.2) reaches all of them at once: nothing is done for each stream but, once a turn, to wake those that may go on.
 */
export class InitialWindow {
  readonly #wake: () => void;
  readonly #windows: () => Iterable<SendWindow>;
  #size = DEFAULT_SETTINGS.initialWindowSize;
  /** No open stream has been given more beyond it: what ended or was used up since counts until all are looked at. */
  #most = 0;
  #due = false;

  /**
   * @param wake lets the streams that wait for their windows look again
   * @param windows those of the open streams
   */
  constructor(wake: () => void, windows: () => Iterable<SendWindow>) {
    this.#wake = wake;
    this.#windows = windows;
  }

  get size(): number {
    return this.#size;
  }

  /** A stream has been given so much beyond it. */
  exceeded(bytes: number): void {
    if (bytes > this.#most) this.#most = bytes;
  }

  /** @throws ConnectionError when a stream's window would be more than a window can be */
  resize(size: number): void {
    if (size + this.#most > MAX_WINDOW) this.#lookAgain();
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

  #lookAgain(): void {
    this.#most = 0;
    for (const { more } of this.#windows()) this.exceeded(more);
  }
}

/** What the other side still takes on one stream. */
export class SendWindow {
  readonly #initial: InitialWindow;
  /** Given beyond the initial window, less what was sent, in bytes. */
  #more = 0;

  constructor(initial: InitialWindow) {
    this.#initial = initial;
  }

  /** In bytes; below 0 when the initial window has shrunk since. */
  get size(): number {
    return this.#initial.size + this.#more;
  }

  /** What of it is beyond the initial window. */
  get more(): number {
    return this.#more;
  }

  sent(bytes: number): void {
    this.#more -= bytes;
  }

  /** The other side takes more. @returns false when that is more than a window can be (section 6.9.1) */
  widen(bytes: number): boolean {
    this.#more += bytes;
    this.#initial.exceeded(this.#more);
    return this.size <= MAX_WINDOW;
  }
}
