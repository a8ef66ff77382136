import { HungUp, PlaneEnded, SessionLost } from '../dial/errors.ts';
import { Allowance } from './allowance.ts';
import type { Carrier, CarrierUser, Mark, Outer, Position } from './carrier.ts';
import { Incoming } from './incoming.ts';
import type { Halves } from './options.ts';
import { Outgoing } from './outgoing.ts';
import type { Swept } from './sweep.ts';

/**
 * `running`: the tunnel carries, or waits for a carrier. `complete`: both sides have ended and got everything. `aborted`: the outer side
 * ended the tunnel while there was no carrier. Of these two the other half may not know yet. `gone`: nothing happens any more.
 */
type State = 'running' | 'complete' | 'aborted' | 'gone';

/**
 * One half of a tunnel that outlives what carries it. It counts the bytes of both directions, keeps what it has sent until the other half
 * has handed it to its socket, and goes on from there on the next carrier. It does no I/O. docs/RESUME.md says how the two work together.
 */
export abstract class Half<O extends Outer = Outer> implements CarrierUser, Swept {
  /** For the sweep. */
  before: Swept | undefined;
  behind: Swept | undefined;
  protected readonly outer: O;
  protected readonly halves: Halves;
  readonly #outgoing = new Outgoing();
  readonly #incoming = new Incoming();
  /** Bytes that the other half has not acknowledged, above which the outer side has to wait. Unset until they first were as many as any tunnel may keep. */
  #allowance: Allowance | undefined;
  #carrier: Carrier | undefined;
  #state: State = 'running';
  /** Whether the outer side waits to hear that it may write. */
  #waiting = false;
  /** Whether the outer side knows that the other half has everything. */
  #flushed = false;
  /** When the half ends unless the other is heard before, and why. Set since the last loss, and once the tunnel is complete. */
  #deadline: { readonly at: number; readonly reason?: Error } | undefined;

  constructor(outer: O, halves: Halves) {
    this.outer = outer;
    this.halves = halves;
  }

  /** Whether the outer side may write. */
  get open(): boolean {
    return this.#carrier?.flowing === true && !this.#full;
  }

  get attached(): boolean {
    return this.#carrier !== undefined;
  }

  /** Whether the outer side may still end the tunnel. */
  get running(): boolean {
    return this.#state === 'running';
  }

  /** Bytes that would be sent again on a new carrier. */
  get kept(): number {
    return this.#outgoing.bytes;
  }

  /** Bytes that came and were not taken. */
  get held(): number {
    return this.#incoming.received - this.#incoming.taken;
  }

  /** Begins with the stream that the dial was answered on. */
  start(carrier: Carrier): void {
    this.#carrier = carrier;
    carrier.listen(this);
  }

  // What the outer side says.

  /**
   * Sends bytes. A write may go beyond the allowance, as one that was under way when `open` became false does.
   * @throws RangeError if it goes beyond twice the most, because the other half takes no more
   */
  write(bytes: Uint8Array): void {
    const outgoing = this.#outgoing;
    if (this.#state !== 'running' || outgoing.ended) return;
    const { most } = this.halves.keeping;
    if (outgoing.unacknowledged + bytes.length > 2 * most)
      throw new RangeError(
        `${bytes.length} bytes were written with ${outgoing.unacknowledged} unacknowledged: the most is ${most}`,
      );
    outgoing.add(bytes);
    this.#carrier?.data(bytes);
    this.#askIfFull();
    this.#waiting ||= !this.open;
  }

  /** It sends nothing more. */
  finish(): void {
    if (this.#state !== 'running' || this.#outgoing.ended) return;
    this.#outgoing.ended = true;
    this.#tell();
  }

  /** Its socket took so many of the delivered bytes. */
  take(bytes: number): void {
    if (this.#state !== 'running' || bytes === 0) return;
    const fresh = this.#incoming.take(bytes);
    this.#tellTaken(fresh > 0 && this.#carrier?.read(fresh) === true);
  }

  /** Has `next` asked for more when it is the tunnel's turn. While there is no carrier, `Outer.flowing` comes again with the next one. */
  awaitTurn(next: { writeMore(): void }): void {
    this.#carrier?.awaitTurn(next);
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
    const again = this.#incoming.arrive(bytes.length);
    if (again > 0) carrier.read(again);
    if (again === bytes.length) return;
    const fault = this.#beyond();
    if (fault !== undefined) {
      this.#violated(fault);
      return;
    }
    this.#heard();
    this.outer.deliver(again > 0 ? bytes.subarray(again) : bytes);
    this.#endIncoming();
  }

  mark(carrier: Carrier, mark: Mark): void {
    if (carrier !== this.#carrier || this.#state === 'gone') return;
    const before = this.#outgoing.acknowledged;
    const fault = mark.taken < before ? `it took ${mark.taken} bytes, after ${before}` : this.faultOf(mark);
    if (fault !== undefined) {
      this.#violated(fault);
      return;
    }
    this.#heard();
    this.#apply(mark);
  }

  flowing(carrier: Carrier): void {
    if (carrier === this.#carrier) this.#wake();
  }

  ended(carrier: Carrier): void {
    if (carrier !== this.#carrier) return;
    if (this.#state === 'complete') {
      carrier.end();
      this.disappear();
    } else {
      this.lost(carrier, new SessionLost('the stream ended before the tunnel'));
      carrier.drop();
    }
  }

  aborted(carrier: Carrier, reason: Error): void {
    if (carrier === this.#carrier) this.giveUp(reason);
  }

  lost(carrier: Carrier, reason: Error): void {
    if (carrier !== this.#carrier || this.#state === 'gone') return;
    this.#carrier = undefined;
    this.#waiting = true;
    const { timeoutMs } = this.halves;
    this.#limitTime(reason instanceof HungUp ? Math.min(this.patienceMs, timeoutMs) : timeoutMs, reason);
    this.onDetached(reason);
  }

  /** Says what has waited, and ends if it has waited for too long. */
  remind(): void {
    if (this.#incoming.untold) this.#tell();
    const deadline = this.#deadline;
    if (!deadline || this.#state === 'gone') return;
    if (this.halves.clock.now() >= deadline.at) this.#late(deadline.reason);
    else this.halves.sweep.enter(this);
  }

  // What the halves do in their own ways.

  /**
   * How long it waits for a new carrier once the other half's process has closed its connection, in milliseconds: it is dead, or
   * something on the way closed the connection. If it lives, it is back by then.
   */
  protected abstract get patienceMs(): number;

  /** A carrier was lost. */
  protected abstract onDetached(reason: Error): void;
  /** The outer side ends the tunnel, and there is no carrier to say so. */
  protected abstract onAborted(reason: Error): void;
  /** Both sides have ended. */
  protected abstract onComplete(): void;

  protected get state(): State {
    return this.#state;
  }

  /** Grows with each byte that is taken, here or there. */
  get progress(): number {
    return this.#incoming.taken + this.#outgoing.acknowledged;
  }

  protected get position(): Position {
    return { received: this.#incoming.received, ...this.#mark };
  }

  /** Where this half would go on sending, if the other has received so much. */
  protected sendingFrom(received: number): number {
    return this.#outgoing.next(received);
  }

  /**
   * Goes on with another carrier. Check the other half's position first.
   * @param at the position of the first byte that the carrier brings
   */
  protected adopt(carrier: Carrier, { received, taken, final }: Position, at: number): void {
    const old = this.#carrier;
    const outgoing = this.#outgoing;
    this.#carrier = carrier;
    this.#incoming.goOn(at);
    old?.drop();
    outgoing.release(outgoing.next(received));
    for (const chunk of outgoing.chunks()) carrier.data(chunk);
    // The writer may have waited for its turn on the old carrier.
    this.#waiting = true;
    this.#tell();
    // What it says may be older than what came by the old carrier.
    this.#apply({ taken: Math.max(taken, outgoing.acknowledged), ...(final !== undefined && { final }) });
    carrier.listen(this);
  }

  /** Returns why the other half's positions cannot be true. */
  protected faultOf({ taken, final, received }: Mark & Partial<Position>): string | undefined {
    return this.#outgoing.faultOf(taken, received) ?? this.#incoming.faultOf(final);
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
    this.halves.sweep.leave(this);
    this.#allowance?.shrink();
    this.outer.gone();
  }

  #tellOver(reason: Error | undefined): void {
    this.#outgoing.release(this.#outgoing.to);
    this.#allowance?.shrink();
    this.outer.over(reason);
  }

  get #mark(): Mark {
    const { ended, to, asks, ask } = this.#outgoing;
    return { taken: this.#incoming.takenWithEnd, ...(ended && { final: to }), ...(asks && { ask }) };
  }

  /** Whether the other half has to acknowledge something before more may be written. */
  get #full(): boolean {
    return this.#outgoing.unacknowledged >= (this.#allowance?.bytes ?? this.halves.keeping.base);
  }

  #askIfFull(): void {
    const outgoing = this.#outgoing;
    if (!this.#full) return;
    this.#allowance ??= new Allowance(this.halves.keeping, this.outer.tenant);
    if (this.#allowance.grow() || outgoing.asks) return;
    outgoing.ask = outgoing.to;
    this.#tell();
  }

  #tell(): void {
    if (!this.#carrier) return;
    this.#incoming.told = this.#incoming.takenWithEnd;
    this.#carrier.mark(this.#mark);
  }

  /**
   * Says what was taken: at once if the other half waits for it, or if nothing else is left to say. Otherwise it waits, since the own end
   * often follows at once and says both.
   * @param now whether to say it in any case
   */
  #tellTaken(now: boolean): void {
    const incoming = this.#incoming;
    if (this.#settle()) return;
    if (now || incoming.isAsked || (incoming.done && this.#outgoing.ended)) this.#tell();
    else this.halves.sweep.enter(this);
  }

  #apply({ taken, final, ask = 0 }: Mark): void {
    const [incoming, outgoing] = [this.#incoming, this.#outgoing];
    outgoing.acknowledge(taken);
    if (outgoing.unacknowledged === 0) this.#allowance?.shrink();
    incoming.asked = Math.max(incoming.asked, ask);
    if (incoming.isAsked) this.#tell();
    if (final !== undefined && incoming.final === undefined) {
      incoming.final = final;
      this.#endIncoming();
    }
    this.#wake();
    if (outgoing.done && !this.#flushed && this.#state === 'running') {
      this.#flushed = true;
      this.outer.flushed();
    }
    this.#settle();
  }

  /** A carrier that carries is proof that the tunnel goes on. */
  #heard(): void {
    if (this.#state === 'running') this.#deadline = undefined;
  }

  /** Ends the half after a time, unless it is heard before. */
  #limitTime(ms: number, reason?: Error): void {
    this.#deadline ??= { at: this.halves.clock.now() + ms, ...(reason && { reason }) };
    this.halves.sweep.enter(this);
  }

  #late(reason = new Error('the other end did not end the tunnel')): void {
    const carrier = this.#carrier;
    if (this.#state === 'running') carrier?.abort(reason);
    else carrier?.drop();
    this.giveUp(reason);
  }

  #beyond(): string | undefined {
    const { received, final = Number.POSITIVE_INFINITY } = this.#incoming;
    if (received > final) return 'it sends beyond its end';
    // Twice, because one write may go beyond the limit.
    return this.held > 2 * this.halves.keeping.most ? 'it sends more than may wait here' : undefined;
  }

  #endIncoming(): void {
    const incoming = this.#incoming;
    if (incoming.received !== incoming.final || incoming.ended || this.#state !== 'running') return;
    incoming.ended = true;
    this.outer.ended();
    this.#tellTaken(false);
  }

  #wake(): void {
    this.#askIfFull();
    if (!this.#waiting || !this.open || this.#state !== 'running') return;
    this.#waiting = false;
    this.outer.flowing();
  }

  /** The tunnel is complete once both ends have been taken. @returns whether it is, since now */
  #settle(): boolean {
    const carrier = this.#carrier;
    const incoming = this.#incoming;
    if (this.#state !== 'running' || !carrier || !this.#outgoing.done || !incoming.done) return false;
    this.#state = 'complete';
    this.#limitTime(this.halves.timeoutMs);
    const last = incoming.untold ? this.#mark : undefined;
    incoming.told = incoming.takenWithEnd;
    carrier.end(last);
    this.#tellOver(undefined);
    this.onComplete();
    return true;
  }

  #violated(fault: string): void {
    this.abort(new PlaneEnded(`the other end of the tunnel is in disorder: ${fault}`));
  }
}
