import { Kept } from './kept.ts';

/** The bytes that a half sends, with those that it may have to send again, and its end. */
export class Outgoing extends Kept {
  /** Whether nothing follows the bytes so far. */
  ended = false;
  /** What the other half says that its socket has taken. One more than all bytes once the socket has seen the end, too. */
  acknowledged = 0;
  /** The last position that this half has asked about (`Mark.ask`). */
  ask = 0;

  /** Bytes that the other half has not taken. */
  get unacknowledged(): number {
    return this.to - Math.min(this.acknowledged, this.to);
  }

  /** Whether the other half was asked what it has taken, and has not answered. */
  get asks(): boolean {
    return this.ask > this.acknowledged;
  }

  /** Whether the other half has taken everything, and the end. */
  get done(): boolean {
    return this.ended && this.acknowledged > this.to;
  }

  acknowledge(taken: number): void {
    this.acknowledged = taken;
    this.release(Math.max(this.from, Math.min(taken, this.to)));
  }

  /** The position at which it goes on, if the other half has received this many bytes. */
  next(received: number): number {
    return Math.max(this.from, received);
  }

  /** Returns why the other half cannot have taken and received this many bytes. */
  faultOf(taken: number, received = 0): string | undefined {
    if (taken > this.to + (this.ended ? 1 : 0)) return `it took ${taken} of ${this.to} bytes`;
    if (received > this.to) return `it got ${received} of ${this.to} bytes`;
    return undefined;
  }
}
