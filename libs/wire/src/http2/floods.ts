import { type Config, WIRE } from '../defaults.ts';
import { ConnectionError, ErrorCode, Flag, FrameType } from './frames.ts';

interface AllowanceOptions {
  /** The size of the bucket. */
  readonly atOnce: number;
  /** What each second adds. */
  readonly perSecond: number;
}

/** How often the clock is looked at while a full bucket is spent. */
const CLOCK_LOOKS = 16;

/**
 * A token bucket that looks at the clock only after each sixteenth of it was spent. So after a rest, a burst may be a sixteenth larger: the
 * next look also pays back what was spent before it. `TokenBucket` of libs/tunnel looks at each use, because its size and rate may change;
 * here that would cost each frame a look.
 */
export class Allowance {
  readonly #atOnce: number;
  readonly #perSecond: number;
  #left: number;
  /** The clock is looked at when less than this is left. */
  #lookBelow: number;
  #since = performance.now();

  constructor({ atOnce, perSecond }: AllowanceOptions) {
    this.#atOnce = atOnce;
    this.#perSecond = perSecond;
    this.#left = atOnce;
    this.#lookBelow = atOnce - atOnce / CLOCK_LOOKS;
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
    const now = performance.now();
    this.#lookBelow = 0;
    this.earn(((now - this.#since) / 1000) * this.#perSecond);
    // Where nothing ends for it, what was spent too much is a debt, which is paid as soon as a full bucket would be.
    this.#left = Math.max(this.#left, -this.#atOnce);
    this.#since = now;
    return this.#left >= 0;
  }
}

/** Heads, marks and resets are bounded elsewhere, per stream. */
function costOf(type: number, { floodPass }: Config): number {
  switch (type) {
    case FrameType.HEADERS:
    case FrameType.CONTINUATION:
    case FrameType.RST_STREAM:
    case FrameType.MARK:
      return 0;
    case FrameType.SETTINGS:
    case FrameType.GOAWAY:
      return floodPass;
    default:
      return 1;
  }
}

/**
 * Bounds frames that cost work but carry nothing: PING, SETTINGS, WINDOW_UPDATE, PRIORITY, and empty DATA
 * (CVE-2019-9512, 9515, 9518 and similar).
 */
export class FloodGuard {
  readonly #allowance: Allowance;
  readonly #config: Config;

  constructor(config: Config = WIRE) {
    this.#config = config;
    this.#allowance = new Allowance({ atOnce: config.floodBurst, perSecond: config.floodPerSecond });
  }

  /**
   * Counts a frame of any type except DATA.
   * @throws ConnectionError when there were too many
   */
  came(type: number): void {
    this.#spend(costOf(type, this.#config));
  }

  /**
   * Counts bytes of a DATA frame. Each stream ends once, so the frame that ends it may be empty.
   * @throws ConnectionError when there were too many without any
   */
  data(bytes: number, flags: number): void {
    if (bytes > 0) this.#allowance.earn(bytes * this.#config.floodEarnedByByte);
    else if (!(flags & Flag.END_STREAM)) this.#spend(1);
  }

  /**
   * Counts a mark on a stream that is over.
   * @throws ConnectionError when there were too many
   */
  late(): void {
    this.#spend(1);
  }

  /** Counts a stream that was opened: its two ends may tell each other a few things about it. Heads are bounded elsewhere. */
  opened(): void {
    this.#allowance.earn(this.#config.floodEarnedByStream);
  }

  /** Counts a DATA frame that was sent. */
  sent(bytes: number): void {
    this.#allowance.earn(this.#config.floodEarnedByFrame + bytes * this.#config.floodEarnedByByte);
  }

  #spend(cost: number): void {
    if (!this.#allowance.spend(cost))
      throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, 'too many frames that carry nothing');
  }
}

/**
 * Counts the streams of a connection that the other side cancels, breaks, or has refused. Our own resets do not count. Many are an attack
 * (CVE-2023-44487), because opening one costs the attacker almost nothing.
 */
export class ResetCounter {
  readonly #config: Config;
  #since = Number.NEGATIVE_INFINITY;
  #resets = 0;

  constructor(config: Config) {
    this.#config = config;
  }

  count(): void {
    const now = performance.now();
    if (now - this.#since > this.#config.resetsMs) {
      this.#since = now;
      this.#resets = 0;
    }
    this.#resets++;
  }

  /** Call after the frame is fully handled. @throws ConnectionError after too many */
  check(): void {
    const { resets } = this.#config;
    if (this.#resets > resets)
      throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, `more than ${resets} streams were reset in a row`);
  }
}

/**
 * Bounds the marks that the other side may send on a stream. Each stream has its own bound: too many end their own stream, and no
 * other.
 */
export class MarkAllowance extends Allowance {
  readonly #byFrame: number;

  constructor({ marksAtOnce: atOnce, marksPerSecond: perSecond, marksByFrame }: Config) {
    super({ atOnce, perSecond });
    this.#byFrame = marksByFrame;
  }

  /** A DATA frame was sent or received. */
  earnForData(): void {
    this.earn(this.#byFrame);
  }
}
