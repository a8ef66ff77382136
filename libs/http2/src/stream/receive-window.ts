import { SharedBudget } from '@isthmus/runtime';
import { MAX_WINDOW } from '../codes.ts';

/**
 * Size to which a window grows on any connection whose reader keeps up, in bytes. With 1 MiB, bulk transfer is a third slower and costs
 * the sender twice the CPU time a byte, because it waits for window updates and wakes up for each.
 */
const LOCAL_WINDOW = 4 * 1024 * 1024;

/** Largest window, in bytes: 160 MB/s at a round-trip time of 100 ms. */
const LARGEST_WINDOW = 16 * 1024 * 1024;

/** A reader that reads half a window within this time is fast, in milliseconds. */
const FAST = 200;

/** How much all windows of a process may grow together beyond their initial sizes, in bytes. */
const BUDGET = 128 * 1024 * 1024;

/**
 * A sender with less window than this has to wait, in bytes: a reader returns window in pieces, and on a long path a few of them are
 * always in transit.
 */
const SHORT_WINDOW = 256 * 1024;

/** Bounds of the growth of windows. */
export interface WindowGrowth {
  readonly budget: SharedBudget;
  /** Largest size of a window, in bytes. */
  readonly largest: number;
}

/** Shared by this process. */
const processBudget = new SharedBudget(BUDGET);

/**
 * The receive window of one stream. It starts small, so that many idle or stalled streams hold little. It doubles while its reader
 * empties it faster than the connection can fill it, within the process' budget.
 */
export class ReceiveWindow {
  readonly #budget: SharedBudget;
  readonly #rtt: () => number;
  readonly #largest: number;
  #group: string | undefined;
  #size: number;
  /** Bytes that the other side may still send. */
  #open: number;
  /** Bytes read here and not yet returned to the window. */
  #read = 0;
  #grown = 0;
  #since = performance.now();

  /**
   * @param rtt the connection's round-trip time, in milliseconds
   * @param group who uses its budget
   */
  constructor(
    size: number,
    rtt: () => number,
    { budget = processBudget, largest = LARGEST_WINDOW }: Partial<WindowGrowth> = {},
    group?: string,
  ) {
    this.#group = group;
    this.#size = size;
    this.#open = size;
    this.#rtt = rtt;
    this.#budget = budget;
    this.#largest = largest;
  }

  /** Who uses the budget from now on, known only after the stream began. What it has used before stays with it. */
  account(group: string): void {
    if (this.#grown === 0) this.#group = group;
  }

  /** @returns whether the other side respected the window */
  receive(bytes: number): boolean {
    this.#open -= bytes;
    return this.#open >= 0;
  }

  /** Whether most of the window is unread here, so that the other side has to wait. */
  get short(): boolean {
    return this.#open + this.#read < Math.min(SHORT_WINDOW, this.#size / 2);
  }

  /**
   * Counts bytes as read.
   * @param least while some of the window is held back: where little is left, so much is given back at a time, and the window does not grow
   * @returns how many bytes to return to the other side; 0 for none yet
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

  /** Counts padding as read. Nobody reads it, so the window does not grow. @returns how many bytes to return to the other side */
  skip(padding: number): number {
    return this.consume(padding, Number.POSITIVE_INFINITY);
  }

  /** Enlarges the window by this many bytes. */
  widen(bytes: number): void {
    this.#size += bytes;
    this.#open += bytes;
  }

  /** The stream is over. */
  close(): void {
    if (this.#grown > 0) this.#budget.give(this.#grown, this.#group);
    this.#grown = 0;
    this.#size = MAX_WINDOW;
  }

  #growth(): number {
    const now = performance.now();
    const took = now - this.#since;
    this.#since = now;
    // If a window limits its sender, half of it is read within about half a round trip.
    const short = this.#size < LOCAL_WINDOW ? took < FAST : took < this.#rtt();
    const growth = Math.min(this.#size, this.#largest - this.#size);
    if (!short || growth <= 0 || !this.#budget.take(growth, this.#group)) return 0;
    this.#size += growth;
    this.#grown += growth;
    return growth;
  }
}
