import { systemClock } from '@isthmus/runtime';
import { ConnectionError, ErrorCode, Flag, FrameType } from './frames.ts';

interface AllowanceOptions {
  /** The size of the bucket. */
  readonly atOnce: number;
  /** What each second adds. */
  readonly perSecond: number;
  /** Milliseconds. */
  readonly now?: () => number;
}

/** How often the clock is looked at while a full bucket is spent. */
const CLOCK_LOOKS = 16;

/**
 * A token bucket that looks at the clock only after each sixteenth of it was spent. So after a rest, a burst may be a sixteenth larger: the
 * next look also pays back what was spent before it.
 */
export class Allowance {
  readonly #atOnce: number;
  readonly #perSecond: number;
  readonly #now: () => number;
  #left: number;
  /** The clock is looked at when less than this is left. */
  #lookBelow: number;
  #since: number;

  constructor({ atOnce, perSecond, now = systemClock.now }: AllowanceOptions) {
    this.#atOnce = atOnce;
    this.#perSecond = perSecond;
    this.#now = now;
    this.#left = atOnce;
    this.#lookBelow = atOnce - atOnce / CLOCK_LOOKS;
    this.#since = now();
  }

  earn(more: number): void {
    this.#left = Math.min(this.#atOnce, this.#left + more);
    this.#lookBelow = Math.max(this.#lookBelow, this.#left - this.#atOnce / CLOCK_LOOKS);
  }

  /** @returns whether the bucket held as much */
  spend(cost: number): boolean {
    this.#left -= cost;
    return this.#left >= this.#lookBelow || this.#refill();
  }

  #refill(): boolean {
    const now = this.#now();
    this.#lookBelow = 0;
    this.earn(((now - this.#since) / 1000) * this.#perSecond);
    this.#since = now;
    return this.#left >= 0;
  }
}

/**
 * Budget for a peer's frames without content: the largest burst, and what each second adds. A PING costs 1, about two microseconds of
 * CPU. So these frames take at most 0.2 % of a processor per connection, and a burst takes 20 ms.
 */
const FLOOD_BURST = 10_000;
const FLOOD_PER_SECOND = 1_000;

/**
 * SETTINGS and GOAWAY may visit every open stream: 50 in a burst, 5 a second. The busiest known sender is Go's client, which doubles
 * its window 8 times.
 */
const PASS_COST = 200;

/** Cost of each stream that a message visits, if it concerns all streams. A pass over 65,536 of them takes at most 13 ms. */
const VISIT_COST = 0.01;

/** What traffic earns: a receiver of data sends window updates, and measures the round trip with PINGs. */
const EARNED_PER_STREAM = 4;
const EARNED_PER_SENT_FRAME = 4;
const EARNED_PER_BYTE = 1 / 512;

/** Cost by frame type; all others cost 1. Heads, marks and resets are bounded elsewhere, per stream. */
const COSTS: Readonly<Record<number, number>> = {
  [FrameType.HEADERS]: 0,
  [FrameType.CONTINUATION]: 0,
  [FrameType.RST_STREAM]: 0,
  [FrameType.MARK]: 0,
  [FrameType.SETTINGS]: PASS_COST,
  [FrameType.GOAWAY]: PASS_COST,
};

/**
 * Bounds frames that cost work but carry nothing: PING, SETTINGS, WINDOW_UPDATE, PRIORITY, and empty DATA
 * (CVE-2019-9512, 9515, 9518 and similar).
 */
export class FloodGuard {
  readonly #allowance: Allowance;

  /** @param now milliseconds */
  constructor(now?: () => number) {
    this.#allowance = new Allowance({ atOnce: FLOOD_BURST, perSecond: FLOOD_PER_SECOND, ...(now && { now }) });
  }

  /**
   * Counts a frame of any type except DATA.
   * @throws ConnectionError when there were too many
   */
  came(type: number): void {
    this.#spend(COSTS[type] ?? 1);
  }

  /**
   * Counts bytes of a DATA frame. Each stream ends once, so the frame that ends it may be empty.
   * @throws ConnectionError when there were too many without any
   */
  data(bytes: number, flags: number): void {
    if (bytes > 0) this.#allowance.earn(bytes * EARNED_PER_BYTE);
    else if (!(flags & Flag.END_STREAM)) this.#spend(1);
  }

  /**
   * Counts a mark on a stream that is over.
   * @throws ConnectionError when there were too many
   */
  late(): void {
    this.#spend(1);
  }

  /**
   * Counts a message for which all streams were visited.
   * @throws ConnectionError when there were too many
   */
  visited(streams: number): void {
    this.#spend(1 + streams * VISIT_COST);
  }

  /** Counts a stream that was opened: its two ends may tell each other a few things about it. Heads are bounded elsewhere. */
  opened(): void {
    this.#allowance.earn(EARNED_PER_STREAM);
  }

  /** Counts a DATA frame that was sent. */
  sent(bytes: number): void {
    this.#allowance.earn(EARNED_PER_SENT_FRAME + bytes * EARNED_PER_BYTE);
  }

  #spend(cost: number): void {
    if (!this.#allowance.spend(cost))
      throw new ConnectionError(
        ErrorCode.ENHANCE_YOUR_CALM,
        'too many frames that carry nothing, or messages that visit every stream',
      );
  }
}

/** Period over which resets are counted, in milliseconds. */
const PERIOD_MS = 10_000;

/** Counts a connection's reset streams. Many are an attack (CVE-2023-44487), because opening one costs the attacker almost nothing. */
export class ResetCounter {
  readonly #maxResets: number;
  readonly #now: () => number;
  #since = Number.NEGATIVE_INFINITY;
  #resets = 0;

  /** @param most streams that may be reset in 10 seconds */
  constructor(most: number, now: () => number = () => performance.now()) {
    this.#maxResets = most;
    this.#now = now;
  }

  count(): void {
    const now = this.#now();
    if (now - this.#since > PERIOD_MS) {
      this.#since = now;
      this.#resets = 0;
    }
    this.#resets++;
  }

  /** Call after the frame is fully handled. @throws ConnectionError after too many */
  check(): void {
    if (this.#resets > this.#maxResets)
      throw new ConnectionError(
        ErrorCode.ENHANCE_YOUR_CALM,
        `more than ${this.#maxResets} streams were reset in a row`,
      );
  }
}

/** Marks that a stream accepts at once and per second. Its other end sends at most four a second without new bytes. */
const RATE = { atOnce: 256, perSecond: 16 };

/** Marks that each DATA frame adds, in either direction, because they say what was sent and what was taken. */
const MARKS_A_FRAME = 4;

/**
 * Bounds the marks that the other side may send on a stream. Each stream has its own bound, because a hub passes on the marks of many
 * tunnels: too many end their own tunnel, and no other.
 */
export class MarkAllowance extends Allowance {
  constructor() {
    super(RATE);
  }

  /** A DATA frame was sent or received. */
  earnForData(): void {
    this.earn(MARKS_A_FRAME);
  }
}
