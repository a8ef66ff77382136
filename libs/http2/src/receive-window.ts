import { MAX_WINDOW } from './codes.ts';

/**
 * A window grows to this on any connection whose reader keeps up, in bytes: with 1 MiB bulk is a third slower and costs the sender
 * twice the time a byte, since it waits for windows and wakes up for each.
 */
const LOCAL_WINDOW = 4 * 1024 * 1024;

/** A window grows no further, in bytes: 160 MB/s at 100 ms of round-trip time. */
const LARGEST_WINDOW = 16 * 1024 * 1024;

/** Half a window that is read within this time is read fast, in milliseconds. */
const FAST = 200;

/** What all windows of a process may grow by together, beyond what streams begin with, in bytes. */
const BUDGET = 128 * 1024 * 1024;

/** What windows may still grow by. */
export class WindowBudget {
  #left: number;

  constructor(bytes = BUDGET) {
    this.#left = bytes;
  }

  get left(): number {
    return this.#left;
  }

  take(bytes: number): boolean {
    if (bytes > this.#left) return false;
    this.#left -= bytes;
    return true;
  }

  give(bytes: number): void {
    this.#left += bytes;
  }
}

/**
 * Who may send no more than this has to wait, in bytes: what a reader takes is given back in pieces, and over a long way a few of them are
 * under way at any time.
 */
const SHORT = 256 * 1024;

/** This process'. */
const processBudget = new WindowBudget();

/**
 * What the other side may send on one stream before it is read here. It begins small, so that many idle or stalled streams
 * hold little, and doubles while its reader empties it faster than the connection can fill it, within the process' budget.
 */
export class ReceiveWindow {
  readonly #budget: WindowBudget;
  readonly #rtt: () => number;
  readonly #largest: number;
  #size: number;
  /** What the other side may still send. */
  #open: number;
  /** Read here, and not yet given back. */
  #read = 0;
  #grown = 0;
  #since = performance.now();

  /**
   * @param rtt the connection's round-trip time, in milliseconds
   * @param options.largest what it may grow to, in bytes
   */
  constructor(size: number, rtt: () => number, { budget = processBudget, largest = LARGEST_WINDOW } = {}) {
    this.#size = size;
    this.#open = size;
    this.#rtt = rtt;
    this.#budget = budget;
    this.#largest = largest;
  }

  /** @returns whether the other side kept to its window */
  receive(bytes: number): boolean {
    this.#open -= bytes;
    return this.#open >= 0;
  }

  /** Whether most of it lies here unread, so that the other side has to wait. */
  get short(): boolean {
    return this.#open + this.#read < Math.min(SHORT, this.#size / 2);
  }

  /**
   * Takes bytes as read.
   * @param least while some of the window is held back: where little is left, so much is given back at a time, and the window does not grow
   * @returns what to give the other side: 0 for nothing yet
   */
  consume(bytes: number, least?: number): number {
    this.#read += bytes;
    const half = this.#size / 2;
    if (this.#read < (least === undefined ? half : Math.min(half, Math.max(least, this.#open)))) return 0;
    const credit = this.#read + (least === undefined ? this.#growth() : 0);
    this.#open += credit;
    this.#read = 0;
    return credit;
  }

  /** Takes padding as read: nobody reads it, so the window does not grow for it. @returns what to give the other side */
  skip(padding: number): number {
    return this.consume(padding, Number.POSITIVE_INFINITY);
  }

  /** The other side may send so many bytes more ahead. */
  widen(bytes: number): void {
    this.#size += bytes;
    this.#open += bytes;
  }

  /** The stream is over. */
  close(): void {
    this.#budget.give(this.#grown);
    this.#grown = 0;
    this.#size = MAX_WINDOW;
  }

  #growth(): number {
    const now = performance.now();
    const took = now - this.#since;
    this.#since = now;
    // A window that limits its sender is read by half within half a round trip, or little more.
    const short = this.#size < LOCAL_WINDOW ? took < FAST : took < this.#rtt();
    const growth = Math.min(this.#size, this.#largest - this.#size);
    if (!short || growth <= 0 || !this.#budget.take(growth)) return 0;
    this.#size += growth;
    this.#grown += growth;
    return growth;
  }
}
