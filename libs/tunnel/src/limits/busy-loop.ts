/**
 * The share of its time that the event loop may be busy. Work waits twice as long for a loop that is busy half of its time as for an idle
 * one, and ten times as long at nine tenths.
 */
export const BUSY_SHARE = 0.5;

/** How often the use of the loop is measured, in milliseconds. */
const SAMPLE_EVERY_MS = 20;

/** The time over which the use of the loop is averaged, in seconds. */
export const AVERAGED_OVER_SECONDS = 0.1;

/** How fast a rate follows the loop. With a loop that is busier than `BUSY_SHARE` by 0.1, the rate falls by a factor of e each second. */
const RATE_GAIN = 10;

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
    this.#stop = this.#every(SAMPLE_EVERY_MS, () => this.#tick(tick));
  }

  stop(): void {
    this.#stop?.();
    this.#stop = undefined;
  }

  /** By how much a rate grows in so many seconds, to keep the loop at `BUSY_SHARE`. */
  growth(seconds: number): number {
    return Math.exp(RATE_GAIN * (BUSY_SHARE - this.busy) * seconds);
  }

  #tick(tick: (seconds: number) => void): void {
    const now = this.now();
    const seconds = (now - this.#ticked) / 1000;
    this.#ticked = now;
    this.busy += (this.#use() - this.busy) * Math.min(1, seconds / AVERAGED_OVER_SECONDS);
    tick(seconds);
  }
}

function repeated(ms: number, run: () => void): () => void {
  const timer = setInterval(run, ms).unref();
  return () => clearInterval(timer);
}
