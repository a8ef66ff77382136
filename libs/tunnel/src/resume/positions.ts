import { Allowance } from './allowance.ts';
import type { Carrier, Mark, Outer, Position } from './carrier.ts';
import { Incoming } from './incoming.ts';
import type { Halves } from './options.ts';
import { Outgoing } from './outgoing.ts';

/** How far both directions of a half have got, and the marks that tell the other half. `Half` has the rest of its life. */
export abstract class Positions<O extends Outer> {
  protected readonly outer: O;
  protected readonly halves: Halves;
  protected readonly outgoing = new Outgoing();
  protected readonly incoming = new Incoming();
  /** Unset while the half is detached. */
  protected carrier: Carrier | undefined;
  /** How many bytes may be unacknowledged before the outer side has to wait. Unset until `Keeping.base` is reached, which is rare. */
  #allowance: Allowance | undefined;
  /** How many bytes it may hold while some of them are of earlier carriers. Unset until that many are held, which is rare. */
  #holding: Allowance | undefined;

  constructor(outer: O, halves: Halves) {
    this.outer = outer;
    this.halves = halves;
  }

  /** Bytes that a new carrier would have to send again. */
  get kept(): number {
    return this.outgoing.bytes;
  }

  /** Bytes that have arrived and were not taken. */
  get held(): number {
    return this.incoming.received - this.incoming.taken;
  }

  /** Grows with each byte that a socket takes, at either end. */
  get progress(): number {
    return this.incoming.taken + this.outgoing.acknowledged;
  }

  protected get position(): Position {
    return { received: this.incoming.received, ...this.newestMark };
  }

  protected get newestMark(): Mark {
    const { ended, to, asks, ask } = this.outgoing;
    return { taken: this.incoming.takenWithEnd, ...(ended && { final: to }), ...(asks && { ask }) };
  }

  /** Whether the other half must acknowledge bytes before more may be written. */
  protected get full(): boolean {
    return this.outgoing.unacknowledged >= (this.#allowance?.bytes ?? this.halves.keeping.base);
  }

  /** The position at which this half would go on sending, if the other one has received this many bytes. */
  protected sendingFrom(received: number): number {
    return this.outgoing.next(received);
  }

  /** Returns why the other half's positions cannot be true. */
  protected faultOf({ taken, final, received }: Mark & Partial<Position>): string | undefined {
    return this.outgoing.faultOf(taken, received) ?? this.incoming.faultOf(final);
  }

  /** Returns why the other half should not have sent all that it has. */
  protected excess(): string | undefined {
    const { received, final = Number.POSITIVE_INFINITY } = this.incoming;
    if (received > final) return 'it sends beyond its end';
    // Twice, because one write may go beyond the limit.
    return this.held > 2 * this.halves.keeping.most ? 'it sends more than may wait here' : undefined;
  }

  /**
   * Whether so many bytes more may wait here. A stream's window bounds what waits of one carrier. What waits of earlier ones has no window
   * any more, so it counts here.
   */
  protected mayHold(bytes: number): boolean {
    const { keeping } = this.halves;
    const base = keeping.base / 2;
    if (this.incoming.ofEarlier === 0) return true;
    while (this.held + bytes > (this.#holding?.bytes ?? base)) {
      this.#holding ??= new Allowance({ ...keeping, base }, this.outer.tenant);
      if (!this.#holding.grow()) return false;
    }
    return true;
  }

  /** Whether the half that had to leave bytes has room for them now. */
  protected get hasRoom(): boolean {
    return this.held <= this.halves.keeping.base / 4;
  }

  protected sendMark(): void {
    if (!this.carrier) return;
    this.incoming.told = this.incoming.takenWithEnd;
    this.carrier.mark(this.newestMark);
  }

  /** If the allowance is used up and cannot grow, asks the other half to acknowledge at once. */
  protected askIfFull(): void {
    const { outgoing } = this;
    if (!this.full) return;
    this.#allowance ??= new Allowance(this.halves.keeping, this.outer.tenant);
    if (this.#allowance.grow() || outgoing.asks) return;
    outgoing.ask = outgoing.to;
    this.sendMark();
  }

  /** Call once nothing is unacknowledged, or nobody needs it any more. */
  protected shrinkAllowance(): void {
    this.#allowance?.shrink();
  }

  /** Call once nothing of earlier carriers is held, or nobody needs it any more. */
  protected shrinkHolding(): void {
    this.#holding?.shrink();
  }
}
