import type { Clock } from '@isthmus/runtime';
import type { Carrier, Mark, Outer, Position } from './carrier.ts';
import { Kept } from './kept.ts';

/** Bytes that were taken here are acknowledged after so many, or so many milliseconds. */
const ACKNOWLEDGE_BYTES = 64 * 1024;
const ACKNOWLEDGE_MS = 250;

export interface HalfOptions {
  readonly outer: Outer;
  readonly clock: Clock;
  /** How long the half waits for a new carrier, in milliseconds. */
  readonly timeoutMs: number;
  /** Bytes that the other half has not acknowledged, above which the outer side has to wait. The same for both halves. */
  readonly limit: number;
  /** Called once, when nothing needs the half any more; after `Outer.over`. */
  readonly gone: () => void;
}

/**
 * `running`: the tunnel carries, or waits for a carrier. `complete`: both sides have ended and got everything. `aborted`: the outer side
 * ended the tunnel while there was no carrier. Of these two the other half may not know yet. `gone`: nothing happens any more.
 */
type State = 'running' | 'complete' | 'aborted' | 'gone';

/**
 * One half of a tunnel that outlives what carries it. It counts the bytes of both directions, keeps what it has sent until the other half
 * has handed it to its socket, and goes on from there on the next carrier. It does no I/O. docs/RESUME.md says how the two work together.
 */
export abstract class Half {
  protected readonly options: HalfOptions;
  readonly #kept = new Kept();
  #carrier: Carrier | undefined;
  #state: State = 'running';
  /** Set while the other half has not been heard since the last loss, and once the tunnel is complete. */
  #cancelDeadline: (() => void) | undefined;
  #cancelAcknowledgement: (() => void) | undefined;

  // What goes out.
  #ended = false;
  /** What the other half has taken, by its word. */
  #acknowledged = 0;
  #waiting = false;

  // What comes in.
  #received = 0;
  /** The position of the carrier's next byte. Lower than what was received if the carrier began before. */
  #carrierAt = 0;
  #taken = 0;
  #final: number | undefined;
  #endTold = false;
  #told = 0;

  constructor(options: HalfOptions) {
    this.options = options;
  }

  /** Whether the outer side may write. */
  get open(): boolean {
    return this.#carrier !== undefined && this.unacknowledged < this.options.limit;
  }

  get attached(): boolean {
    return this.#carrier !== undefined;
  }

  /** Bytes that the other half has not taken. */
  get unacknowledged(): number {
    return this.#kept.to - Math.min(this.#acknowledged, this.#kept.to);
  }

  /** Bytes that would be sent again on a new carrier. */
  get kept(): number {
    return this.#kept.bytes;
  }

  /** Bytes that came and were not taken. */
  get held(): number {
    return this.#received - this.#taken;
  }

  /** Begins with the stream that the dial was answered on. */
  start(carrier: Carrier): void {
    this.#carrier = carrier;
  }

  // What the outer side says.

  /**
   * Sends bytes. A write may go beyond the limit, as one that was under way when `open` became false does.
   * @throws RangeError if it goes beyond twice the limit, because the other half takes no more
   */
  write(bytes: Uint8Array): void {
    if (this.#state !== 'running' || this.#ended) return;
    const { limit } = this.options;
    if (this.unacknowledged + bytes.length > 2 * limit)
      throw new RangeError(
        `${bytes.length} bytes were written with ${this.unacknowledged} unacknowledged: the limit is ${limit}`,
      );
    this.#kept.add(bytes);
    this.#carrier?.data(bytes);
    this.#waiting ||= !this.open;
  }

  /** It sends nothing more. */
  finish(): void {
    if (this.#state !== 'running' || this.#ended) return;
    this.#ended = true;
    this.#tell();
  }

  /** Its socket took so many of the delivered bytes. */
  take(bytes: number): void {
    if (this.#state !== 'running' || bytes === 0) return;
    this.#taken += bytes;
    if (this.#takenWithEnd - this.#told >= ACKNOWLEDGE_BYTES || this.#takenWithEnd > this.#taken) this.#tell();
    else this.#cancelAcknowledgement ??= this.options.clock.after(ACKNOWLEDGE_MS, () => this.#tell());
    this.#settle();
  }

  /** Ends the tunnel, for the other half too. Too late once it is complete. */
  abort(reason: Error): void {
    if (this.#state !== 'running') return;
    const carrier = this.#carrier;
    if (carrier) {
      carrier.abort(reason);
      this.giveUp(reason);
      return;
    }
    this.#state = 'aborted';
    this.onAborted(reason);
    this.#tellOver(reason);
  }

  // What a carrier brings. One that is not the latest is not listened to.

  data(carrier: Carrier, bytes: Uint8Array): void {
    if (carrier !== this.#carrier || this.#state !== 'running') return;
    const again = this.#received - this.#carrierAt;
    this.#carrierAt += bytes.length;
    if (again >= bytes.length) return;
    const fresh = again > 0 ? bytes.subarray(again) : bytes;
    const fault = this.#beyond(this.#carrierAt);
    if (fault !== undefined) {
      this.#violated(fault);
      return;
    }
    this.#heard();
    this.#received = this.#carrierAt;
    this.options.outer.deliver(fresh);
    this.#endIncoming();
  }

  mark(carrier: Carrier, mark: Mark): void {
    if (carrier !== this.#carrier || this.#state === 'gone') return;
    const before = this.#acknowledged;
    const fault = mark.taken < before ? `it took ${mark.taken} bytes, after ${before}` : this.faultOf(mark);
    if (fault !== undefined) {
      this.#violated(fault);
      return;
    }
    this.#heard();
    this.#apply(mark);
  }

  /** The other half has said everything. */
  ended(carrier: Carrier): void {
    if (carrier !== this.#carrier) return;
    if (this.#state === 'complete') {
      carrier.end();
      this.disappear();
    } else this.lost(carrier, new Error('the stream ended before the tunnel'));
  }

  /** The other half ended the tunnel. */
  aborted(carrier: Carrier, reason: Error): void {
    if (carrier !== this.#carrier) return;
    this.giveUp(reason);
  }

  /** The carrier is gone, and nobody meant that to be the tunnel's end. */
  lost(carrier: Carrier, reason: Error): void {
    if (carrier !== this.#carrier || this.#state === 'gone') return;
    this.#carrier = undefined;
    this.#waiting = true;
    this.#limitTime(reason);
    this.onDetached();
  }

  // What the halves do in their own ways.

  /** A carrier was lost. */
  protected abstract onDetached(): void;
  /** The outer side ends the tunnel, and there is no carrier to say so. */
  protected abstract onAborted(reason: Error): void;
  /** Both sides have ended. */
  protected abstract onComplete(carrier: Carrier): void;

  protected get state(): State {
    return this.#state;
  }

  /** Grows with each byte that arrives here or is taken there. */
  protected get progress(): number {
    return this.#received + this.#acknowledged;
  }

  protected get position(): Position {
    return { received: this.#received, ...this.#mark };
  }

  /** Where this half would go on sending, if the other has received so much. */
  protected sendingFrom(received: number): number {
    return Math.max(this.#kept.from, received);
  }

  /**
   * Goes on with another carrier. Check the other half's position first.
   * @param at the position of the first byte that the carrier brings
   */
  protected adopt(carrier: Carrier, { received, taken, final }: Position, at: number): void {
    const old = this.#carrier;
    this.#carrier = carrier;
    this.#carrierAt = at;
    old?.drop();
    this.#kept.release(this.sendingFrom(received));
    for (const chunk of this.#kept.chunks()) carrier.data(chunk);
    this.#tell();
    // What it says may be older than what came by the old carrier.
    this.#apply({ taken: Math.max(taken, this.#acknowledged), ...(final !== undefined && { final }) });
  }

  /** Returns why the other half's positions cannot be true. */
  protected faultOf({ taken, final, received = 0 }: Mark & Partial<Position>): string | undefined {
    const sent = this.#kept.to;
    if (taken > sent + (this.#ended ? 1 : 0)) return `it took ${taken} of ${sent} bytes`;
    if (received > sent) return `it got ${received} of ${sent} bytes`;
    if (final !== undefined && (final < this.#received || (this.#final ?? final) !== final))
      return `it cannot end at byte ${final}`;
    return undefined;
  }

  /** Ends the half, and the tunnel if it had not ended. */
  protected giveUp(reason: Error): void {
    if (this.#state === 'running') {
      this.#state = 'aborted';
      this.#tellOver(reason);
    }
    this.disappear();
  }

  protected disappear(): void {
    if (this.#state === 'gone') return;
    this.#state = 'gone';
    this.#carrier = undefined;
    this.#cancelDeadline?.();
    this.options.gone();
  }

  #tellOver(reason: Error | undefined): void {
    this.#cancelAcknowledgement?.();
    this.#kept.release(this.#kept.to);
    this.options.outer.over(reason);
  }

  get #takenWithEnd(): number {
    return this.#endTold && this.#taken === this.#final ? this.#taken + 1 : this.#taken;
  }

  get #mark(): Mark {
    return { taken: this.#takenWithEnd, ...(this.#ended && { final: this.#kept.to }) };
  }

  #tell(): void {
    this.#cancelAcknowledgement?.();
    this.#cancelAcknowledgement = undefined;
    if (!this.#carrier) return;
    this.#told = this.#takenWithEnd;
    this.#carrier.mark(this.#mark);
  }

  #apply({ taken, final }: Mark): void {
    this.#acknowledged = taken;
    this.#kept.release(Math.max(this.#kept.from, Math.min(taken, this.#kept.to)));
    if (final !== undefined && this.#final === undefined) {
      this.#final = final;
      this.#endIncoming();
    }
    this.#wake();
    this.#settle();
  }

  /** A carrier that carries is proof that the tunnel goes on. */
  #heard(): void {
    if (this.#state !== 'running') return;
    this.#cancelDeadline?.();
    this.#cancelDeadline = undefined;
  }

  /** Ends the half after the timeout, unless it is heard before. */
  #limitTime(reason: Error): void {
    const late = () => {
      const carrier = this.#carrier;
      if (this.#state === 'running') carrier?.abort(reason);
      else carrier?.drop();
      this.giveUp(reason);
    };
    this.#cancelDeadline ??= this.options.clock.after(this.options.timeoutMs, late);
  }

  #beyond(position: number): string | undefined {
    if (position > (this.#final ?? Number.POSITIVE_INFINITY)) return 'it sends beyond its end';
    // Twice, because one write may go beyond the limit.
    return position - this.#taken > 2 * this.options.limit ? 'it sends more than may wait here' : undefined;
  }

  #endIncoming(): void {
    if (this.#received !== this.#final || this.#endTold || this.#state !== 'running') return;
    this.#endTold = true;
    this.options.outer.end();
    if (this.#taken === this.#final) this.#tell();
    this.#settle();
  }

  #wake(): void {
    if (!this.#waiting || !this.open || this.#state !== 'running') return;
    this.#waiting = false;
    this.options.outer.writable();
  }

  /** The tunnel is complete once both ends have been taken, and the other half has been told so. */
  #settle(): void {
    const carrier = this.#carrier;
    const complete = this.#ended && this.#acknowledged > this.#kept.to && this.#takenWithEnd > this.#taken;
    if (this.#state !== 'running' || !complete || !carrier) return;
    if (this.#told < this.#takenWithEnd) this.#tell();
    this.#state = 'complete';
    this.#limitTime(new Error('the other end did not end the tunnel'));
    this.#tellOver(undefined);
    this.onComplete(carrier);
  }

  #violated(fault: string): void {
    this.abort(new Error(`the other end of the tunnel is in disorder: ${fault}`));
  }
}
