import { Kept } from './kept.ts';

/** What a half sends: all that the other half may still have to get again, and its end. */
export class Outgoing extends Kept {
  /** It sends nothing more. */
  ended = false;
  /** What the other half has taken, by its word: one more than there are bytes once its socket has seen the end, too. */
  acknowledged = 0;
  /** The position that this half has last asked about. */
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

  /** Where it goes on, if the other half has received so much. */
  next(received: number): number {
    return Math.max(this.from, received);
  }

  /** Returns why the other half cannot have got and taken so much. */
  faultOf(taken: number, received = 0): string | undefined {
    if (taken > this.to + (this.ended ? 1 : 0)) return `it took ${taken} of ${this.to} bytes`;
    if (received > this.to) return `it got ${received} of ${this.to} bytes`;
    return undefined;
  }
}
