import { Allowance } from '../connection/allowance.ts';

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
