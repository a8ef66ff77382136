import { Allowance } from './allowance.ts';
import { ConnectionError, ErrorCode, Flag, FrameType } from './codes.ts';

/**
 * What a peer's frames that carry nothing may cost at once, and what a second of patience adds. A PING costs 1: about two microseconds
 * of ours. So a connection takes two thousandths of a processor by them, and a burst 20 ms.
 */
const BURST = 10_000;
const PER_SECOND = 1_000;

/**
 * SETTINGS and GOAWAY may look at every open stream: 50 in a burst, 5 a second. The most that is known to send any is a client of Go's,
 * which doubles its window 8 times.
 */
const PASS = 200;

/** A look at one of many streams, where a message asks for all of them: a pass over 65,536 is 13 ms at most. */
const LOOK = 0.01;

/** What the traffic itself allows: who gets data sends windows' updates, and measures the way with PINGs. */
const PER_SENT_FRAME = 4;
const PER_BYTE = 1 / 512;

/** By type; what is not here costs 1. Heads and resets are bounded elsewhere, by streams. */
const COSTS: Readonly<Record<number, number>> = {
  [FrameType.HEADERS]: 0,
  [FrameType.CONTINUATION]: 0,
  [FrameType.RST_STREAM]: 0,
  [FrameType.SETTINGS]: PASS,
  [FrameType.GOAWAY]: PASS,
};

/**
 * Bounds frames that make a connection work and carry nothing: PING, SETTINGS, WINDOW_UPDATE, PRIORITY, and empty DATA
 * (CVE-2019-9512, 9515, 9518 and their like).
 */
export class FloodGuard {
  readonly #allowance: Allowance;

  /** @param now milliseconds */
  constructor(now?: () => number) {
    this.#allowance = new Allowance({ atOnce: BURST, perSecond: PER_SECOND, ...(now && { now }) });
  }

  /**
   * A frame came, of any type but DATA.
   * @throws ConnectionError when there were too many
   */
  came(type: number): void {
    this.#spend(COSTS[type] ?? 1);
  }

  /**
   * Bytes of a DATA frame came. Each stream has one end, so the frame that has it may be empty.
   * @throws ConnectionError when there were too many without any
   */
  data(bytes: number, flags: number): void {
    if (bytes > 0) this.#allowance.earn(bytes * PER_BYTE);
    else if (!(flags & Flag.END_STREAM)) this.#spend(1);
  }

  /**
   * A message came for which all streams were looked at.
   * @throws ConnectionError when there were too many
   */
  looked(streams: number): void {
    this.#spend(1 + streams * LOOK);
  }

  /** A frame of data was sent. */
  sent(bytes: number): void {
    this.#allowance.earn(PER_SENT_FRAME + bytes * PER_BYTE);
  }

  #spend(cost: number): void {
    if (!this.#allowance.spend(cost))
      throw new ConnectionError(
        ErrorCode.ENHANCE_YOUR_CALM,
        'too many frames that carry nothing, or messages that look at every stream',
      );
  }
}
