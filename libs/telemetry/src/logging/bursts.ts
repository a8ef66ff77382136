/** How many events of one kind pass in a window. */
export interface BurstLimit {
  readonly most: number;
  readonly windowMs: number;
}

interface Window {
  seen: number;
  readonly timer: NodeJS.Timeout;
}

/** Lets the first events of each kind in a window pass, and tells when it ends how many did not. Idle kinds cost nothing. */
export class Bursts {
  readonly #windows = new Map<string, Window>();
  readonly #limit: BurstLimit;
  readonly #tell: (kind: string, leftOut: number) => void;

  constructor(limit: BurstLimit, tell: (kind: string, leftOut: number) => void) {
    this.#limit = limit;
    this.#tell = tell;
  }

  admit(kind: string): boolean {
    let window = this.#windows.get(kind);
    if (!window) {
      const timer = setTimeout(() => this.#close(kind), this.#limit.windowMs);
      timer.unref();
      window = { seen: 0, timer };
      this.#windows.set(kind, window);
    }
    window.seen++;
    return window.seen <= this.#limit.most;
  }

  /** Ends all windows now. */
  end(): void {
    for (const kind of [...this.#windows.keys()]) this.#close(kind);
  }

  #close(kind: string): void {
    const window = this.#windows.get(kind);
    if (!window) return;
    clearTimeout(window.timer);
    this.#windows.delete(kind);
    const leftOut = window.seen - this.#limit.most;
    if (leftOut > 0) this.#tell(kind, leftOut);
  }
}
