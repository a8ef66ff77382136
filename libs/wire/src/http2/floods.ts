import { type Config, WIRE } from '../defaults.ts';
import { ConnectionError, ErrorCode, FrameType } from './frames.ts';

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

/**
 * Bounds frames that cost work but carry nothing: PING, SETTINGS, WINDOW_UPDATE, PRIORITY, and empty DATA
 * (CVE-2019-9512, 9515, 9518 and similar).
 */
export class FloodGuard {
  /**
   * What the other side may send for what was opened, sent and received since the last frame that cost something. Whoever does that adds to it,
   * without a call for each frame.
   */
  earned = 0;
  readonly #allowance: Allowance;
  readonly #config: Config;

  constructor(config: Config = WIRE) {
    this.#config = config;
    this.#allowance = new Allowance({ atOnce: config.floodBurst, perSecond: config.floodPerSecond });
  }

  /**
   * Counts a frame that carries nothing. Heads, marks and resets are bounded elsewhere, for each stream.
   * @throws ConnectionError when there were too many
   */
  came(type: number): void {
    this.#allowance.earn(this.earned);
    this.earned = 0;
    const passes = type === FrameType.SETTINGS || type === FrameType.GOAWAY;
    if (!this.#allowance.spend(passes ? this.#config.floodPass : 1))
      throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, 'too many frames that carry nothing');
  }
}

/**
 * Counts the streams of a connection that the other side cancels, breaks, or has refused. Our own resets do not count. Many are an attack
 * (CVE-2023-44487), because opening one costs the attacker almost nothing.
 */
export class ResetCounter extends Allowance {
  /** Whether they are too many. */
  exceeded = false;
  readonly #most: number;

  constructor({ resets, resetsMs }: Config) {
    super({ atOnce: resets, perSecond: (1000 * resets) / resetsMs });
    this.#most = resets;
  }

  count(): void {
    if (!this.spend(1)) this.exceeded = true;
  }

  /** Call after the frame is fully handled. @throws ConnectionError after too many */
  check(): void {
    if (this.exceeded)
      throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, `more than ${this.#most} streams were reset in a row`);
  }
}

/**
 * Bounds the marks that the other side may send on a stream. Each stream has its own bound: too many end their own stream, and no
 * other.
 */
export class MarkAllowance extends Allowance {
  readonly #byFrame: number;

  /** @param came how many have come already */
  constructor({ marksAtOnce: atOnce, marksPerSecond: perSecond, marksByFrame }: Config, came: number) {
    super({ atOnce, perSecond });
    this.#byFrame = marksByFrame;
    this.spend(came);
  }

  /** A DATA frame was sent or received. */
  earnForData(): void {
    this.earn(this.#byFrame);
  }
}
