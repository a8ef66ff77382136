/**
 * Share of its time that the event loop may be busy. A loop that is busy half of its time makes others wait twice as long as an idle one
 * does; at nine tenths it is ten times.
 */
export const BUSY = 0.5;

/** How often the loop is looked at, in milliseconds. */
const TICK = 20;

/** The time over which the use of the loop is averaged, in seconds. */
export const AVERAGED_OVER = 0.1;

/** How fast a rate follows the loop: a loop that is busy by .1 more than `BUSY` divides it by e each second; one by .1 less multiplies it. */
const GAIN = 10;

export interface BusyLoopOptions {
  /** Returns which share of its time the event loop was busy since the last call. */
  readonly use: () => number;
  /** Milliseconds. */
  readonly now?: () => number;
  /** Calls again and again. Returns a function that stops it. */
  readonly every?: (ms: number, run: () => void) => () => void;
}

/** How busy the event loop is, looked at only while somebody needs to know. */
export class BusyLoop {
  readonly now: () => number;
  /** The averaged share of its time. It stays as it is while nobody looks. */
  busy = 0;
  readonly #use: () => number;
  readonly #every: NonNullable<BusyLoopOptions['every']>;
  #ticked = 0;
  #stop: (() => void) | undefined;

  constructor({ use, now = () => performance.now(), every = repeated }: BusyLoopOptions) {
    this.now = now;
    this.#use = use;
    this.#every = every;
  }

  get watched(): boolean {
    return this.#stop !== undefined;
  }

  /** @param tick called with the seconds since the last call */
  watch(tick: (seconds: number) => void): void {
    this.#use();
    this.#ticked = this.now();
    this.#stop = this.#every(TICK, () => this.#tick(tick));
  }

  stop(): void {
    this.#stop?.();
    this.#stop = undefined;
  }

  /** By how much a rate grows in so many seconds, to keep the loop at `BUSY`. */
  growth(seconds: number): number {
    return Math.exp(GAIN * (BUSY - this.busy) * seconds);
  }

  #tick(tick: (seconds: number) => void): void {
    const now = this.now();
    const seconds = (now - this.#ticked) / 1000;
    this.#ticked = now;
    this.busy += (this.#use() - this.busy) * Math.min(1, seconds / AVERAGED_OVER);
    tick(seconds);
  }
}

function repeated(ms: number, run: () => void): () => void {
  const timer = setInterval(run, ms).unref();
  return () => clearInterval(timer);
}
