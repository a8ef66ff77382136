/** How many events of one kind pass in a window. */
export interface BurstLimit {
  readonly most: number;
  readonly windowMs: number;
}

interface Window {
  seen: number;
  /** What says the last of those that were left out. */
  last?: () => void;
  readonly timer: NodeJS.Timeout;
}

/**
 * Lets the first events of each kind in a window pass, and tells when it ends how many did not. Kinds are forgotten with their
 * window: idle ones cost nothing.
 */
export class Bursts {
  readonly #windows = new Map<string, Window>();
  readonly #limit: BurstLimit;
  readonly #tell: (kind: string, leftOut: number) => void;

  constructor(limit: BurstLimit, tell: (kind: string, leftOut: number) => void) {
    this.#limit = limit;
    this.#tell = tell;
  }

  admit(kind: string): boolean {
    return this.#count(kind).seen <= this.#limit.most;
  }

  /** Says it if it may pass. What comes last in a window is said in any case, at its end: it is how things stand. */
  say(kind: string, line: () => void): void {
    const window = this.#count(kind);
    if (window.seen <= this.#limit.most) line();
    else window.last = line;
  }

  /** Ends all windows now. */
  end(): void {
    for (const kind of [...this.#windows.keys()]) this.#close(kind);
  }

  #count(kind: string): Window {
    let window = this.#windows.get(kind);
    if (!window) {
      const timer = setTimeout(() => this.#close(kind), this.#limit.windowMs).unref();
      window = { seen: 0, timer };
      this.#windows.set(kind, window);
    }
    window.seen++;
    return window;
  }

  #close(kind: string): void {
    const window = this.#windows.get(kind);
    if (!window) return;
    clearTimeout(window.timer);
    this.#windows.delete(kind);
    const { seen, last } = window;
    const leftOut = seen - this.#limit.most - (last ? 1 : 0);
    if (leftOut > 0) this.#tell(kind, leftOut);
    last?.();
  }
}
