import type { Due } from '../deadlines.ts';
import { TUNNEL } from '../defaults.ts';
import { PlaneEnded, SessionLost } from '../errors.ts';
import type { Carrier, CarrierUser, HalfUser, Mark, Position } from './carrier.ts';
import { waitAfter } from './dead-or-lost.ts';
import { acknowledgedAtOnce } from './halves.ts';
import { Positions } from './positions.ts';

/**
 * - `running`: the tunnel carries bytes, or waits for a new carrier.
 * - `complete`: both sides have ended, and each has taken everything. The other half may not know it yet.
 * - `aborted`: the user ended the tunnel while there was no carrier. The other half may not know it yet.
 * - `gone`: nothing happens any more.
 */
type State = 'running' | 'complete' | 'aborted' | 'gone';

/**
 * One half of a tunnel that outlives its carriers. It keeps the bytes that it has sent until the socket at the other end has taken them. A
 * new carrier first sends them again, and then goes on. A half does no I/O. docs/RESUME.md says how two halves work together.
 */
export abstract class Half<O extends HalfUser = HalfUser> extends Positions<O> implements CarrierUser, Due {
  /** For the sweep. */
  before: Due | undefined;
  behind: Due | undefined;
  due = Number.POSITIVE_INFINITY;
  #state: State = 'running';
  /** Whether the user waits for `HalfUser.mayWrite`. */
  #writerWaits = false;
  /** Whether there was no room for bytes of the carrier. It left them and all behind them, and another carrier must bring them again. */
  #leftBytes = false;
  /** Whether `HalfUser.flushed` was called. */
  #flushed = false;
  /** Waits until the other half has taken everything. */
  #taken: (() => void) | undefined;
  /** When the half ends, and why, unless it hears of the other one before. Set by the loss of a carrier, and once the tunnel is complete. */
  #deadline: { readonly at: number; readonly reason?: Error } | undefined;

  /** Whether the user may write. */
  get open(): boolean {
    return this.carrier?.drained === true && !this.full;
  }

  /**
   * Whether the user may write although the carrier takes no more now: so far as each tunnel may always keep. A destination's reset discards what
   * has not been read of it, so an agent reads ahead.
   */
  get hasKeepingRoom(): boolean {
    return this.outgoing.unacknowledged < this.halves.keeping.base;
  }

  get attached(): boolean {
    return this.carrier !== undefined;
  }

  /** Whether the user may still end the tunnel. */
  get running(): boolean {
    return this.#state === 'running';
  }

  /** Begins with the stream that the dial was answered on. */
  start(carrier: Carrier): void {
    this.carrier = carrier;
    carrier.deliverTo(this);
  }

  // What the user says.

  /**
   * Sends bytes. A write may exceed the limit, if `open` became false while it was under way.
   * @throws RangeError if it exceeds twice `Keeping.most`, because the other half accepts no more
   */
  write(bytes: Uint8Array): void {
    const outgoing = this.outgoing;
    if (this.#state !== 'running' || outgoing.ended) return;
    const { most } = this.halves.keeping;
    if (outgoing.unacknowledged + bytes.length > 2 * most)
      throw new RangeError(
        `${bytes.length} bytes were written with ${outgoing.unacknowledged} unacknowledged: the most is ${most}`,
      );
    outgoing.add(bytes);
    this.carrier?.data(bytes);
    this.askIfFull();
    this.#writerWaits ||= !this.open;
  }

  /** The user sends nothing more. */
  finish(): void {
    if (this.#state !== 'running' || this.outgoing.ended) return;
    this.outgoing.ended = true;
    this.sendMark();
  }

  /** The user's socket has taken this many of the delivered bytes. */
  take(bytes: number): void {
    if (this.#state !== 'running' || bytes === 0) return;
    const fresh = this.incoming.take(bytes);
    if (this.incoming.ofEarlier === 0) this.shrinkReceiveLimit();
    this.#acknowledge(fresh > 0 && this.carrier?.consume(fresh) === true);
    const carrier = this.carrier;
    if (carrier && this.#leftBytes && this.hasRoom) this.#replace(carrier, 'there is room again for what it left');
  }

  /** Calls `next.writeMore` when it is the tunnel's turn. While there is no carrier, wait for `HalfUser.mayWrite`, which follows the next one. */
  awaitTurn(next: { writeMore(): void }): void {
    this.carrier?.awaitTurn(next);
  }

  /** Calls back once the other half has taken everything that was sent; at once if the tunnel has ended. */
  whenTaken(then: () => void): void {
    const outgoing = this.outgoing;
    if (this.#state !== 'running' || outgoing.unacknowledged === 0) {
      then();
      return;
    }
    this.#taken = then;
    outgoing.ask = outgoing.to;
    this.sendMark();
  }

  /** Ends the tunnel, for the other half too. Does nothing once the tunnel is complete. */
  abort(reason: Error): void {
    if (this.#state !== 'running') return;
    const carrier = this.carrier;
    if (carrier) {
      carrier.abort(reason);
      this.giveUp(reason);
      return;
    }
    this.#state = 'aborted';
    this.onAborted(reason);
    this.#tellOver(reason);
  }

  // What the carrier brings. Earlier carriers are ignored.

  data(carrier: Carrier, bytes: Uint8Array): void {
    if (carrier !== this.carrier || this.#state !== 'running') return;
    this.#leftBytes ||= !this.mayHold(bytes.length - this.incoming.again(bytes.length));
    if (this.#leftBytes) {
      this.#clearDeadline();
      return;
    }
    const again = this.incoming.arrive(bytes.length);
    if (again > 0) carrier.consume(again);
    if (again === bytes.length) return;
    const fault = this.excess();
    if (fault !== undefined) {
      this.#violated(fault);
      return;
    }
    this.#clearDeadline();
    this.user.deliver(again > 0 ? bytes.subarray(again) : bytes);
    this.#endIncoming();
  }

  mark(carrier: Carrier, mark: Mark): void {
    if (carrier !== this.carrier || this.#state === 'gone') return;
    const before = this.outgoing.acknowledged;
    const fault = mark.taken < before ? `it took ${mark.taken} bytes, after ${before}` : this.faultOf(mark);
    if (fault !== undefined) {
      this.#violated(fault);
      return;
    }
    this.#clearDeadline();
    this.#applyMark(mark);
  }

  drained(carrier: Carrier): void {
    if (carrier === this.carrier) this.#wakeWriter();
  }

  ended(carrier: Carrier): void {
    if (carrier !== this.carrier) return;
    if (this.#state === 'complete') {
      carrier.end();
      this.disappear();
    } else this.#replace(carrier, 'the stream ended before the tunnel');
  }

  /** Goes on with another carrier. */
  #replace(carrier: Carrier, reason: string): void {
    this.lost(carrier, new SessionLost(reason));
    carrier.drop();
  }

  aborted(carrier: Carrier, reason: Error): void {
    if (carrier === this.carrier) this.giveUp(reason);
  }

  lost(carrier: Carrier, reason: Error): void {
    if (carrier !== this.carrier || this.#state === 'gone') return;
    this.carrier = undefined;
    this.#writerWaits = true;
    this.#expireAfter(waitAfter(reason, this.farSide, this.halves.timeoutMs), reason);
    this.onDetached(reason);
  }

  /** The sweep's call: sends the mark that has waited, and ends the half if its deadline has passed. */
  remind(): void {
    if (this.incoming.untold > 0) this.sendMark();
    const deadline = this.#deadline;
    if (!deadline || this.#state === 'gone') return;
    if (this.due >= deadline.at) this.#expire(deadline.reason);
    else this.#remindAt(deadline.at);
  }

  // What the two kinds of halves do differently.

  /** Where the other half is. */
  protected abstract get farSide(): 'agent' | 'gateway';

  /** A carrier was lost. */
  protected abstract onDetached(reason: Error): void;
  /** The user has ended the tunnel, and there is no carrier to tell the other half. */
  protected abstract onAborted(reason: Error): void;

  protected get state(): State {
    return this.#state;
  }

  /**
   * Goes on with a new carrier. Check the other half's position first.
   * @param at the position of the first byte that the carrier brings
   */
  protected adopt(carrier: Carrier, { received, taken, final }: Position, at: number): void {
    const old = this.carrier;
    const outgoing = this.outgoing;
    this.carrier = carrier;
    this.incoming.goOn(at);
    this.#leftBytes = false;
    old?.drop();
    outgoing.release(outgoing.next(received));
    for (const chunk of outgoing.chunks()) carrier.data(chunk);
    // The writer may have been waiting for its turn on the old carrier.
    this.#writerWaits = true;
    this.sendMark();
    // A mark on the old carrier may have acknowledged more already.
    this.#applyMark({ taken: Math.max(taken, outgoing.acknowledged), ...(final !== undefined && { final }) });
    carrier.deliverTo(this);
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
    this.carrier = undefined;
    this.halves.sweep.leave(this);
    this.shrinkKeepLimit();
    this.shrinkReceiveLimit();
    this.user.gone();
  }

  #tellOver(reason: Error | undefined): void {
    this.outgoing.release(this.outgoing.to);
    this.shrinkKeepLimit();
    this.user.over(reason);
  }

  /**
   * Tells the other half what was taken: at once if it asked, if that is many bytes, or if this side has nothing more to send. Otherwise
   * the mark waits for the sweep, because this side's own end often follows soon, and its mark says both.
   * @param now whether to tell it at once in any case
   */
  #acknowledge(now: boolean): void {
    const incoming = this.incoming;
    const { sweep } = this.halves;
    if (this.#completeIfDone()) return;
    const many = incoming.untold >= acknowledgedAtOnce(sweep.size);
    if (now || many || incoming.isAsked || (incoming.done && this.outgoing.ended)) this.sendMark();
    else this.#remindAt(this.halves.clock.now() + TUNNEL.acknowledgeMs);
  }

  #applyMark({ taken, final, ask = 0 }: Mark): void {
    const [incoming, outgoing] = [this.incoming, this.outgoing];
    outgoing.acknowledge(taken);
    if (outgoing.unacknowledged === 0) this.shrinkKeepLimit();
    incoming.asked = Math.max(incoming.asked, ask);
    if (incoming.isAsked) this.sendMark();
    if (final !== undefined && incoming.final === undefined) {
      incoming.final = final;
      this.#endIncoming();
    }
    this.#wakeWriter();
    if (outgoing.done && !this.#flushed && this.#state === 'running') {
      this.#flushed = true;
      this.user.flushed();
    }
    this.#completeIfDone();
    if (outgoing.unacknowledged > 0) return;
    const then = this.#taken;
    this.#taken = undefined;
    then?.();
  }

  /** The other half was heard: the carrier works. */
  #clearDeadline(): void {
    if (this.#state === 'running') this.#deadline = undefined;
  }

  /** Ends the half after this time, unless the other half is heard before. */
  #expireAfter(ms: number, reason?: Error): void {
    this.#deadline ??= { at: this.halves.clock.now() + ms, ...(reason && { reason }) };
    this.#remindAt(this.#deadline.at);
  }

  /** Unless it is reminded sooner. */
  #remindAt(at: number): void {
    if (this.before && this.due <= at) return;
    this.due = at;
    this.halves.sweep.enter(this);
  }

  #expire(reason = new Error('the other end did not end the tunnel')): void {
    const carrier = this.carrier;
    if (this.#state === 'running') carrier?.abort(reason);
    else carrier?.drop();
    this.giveUp(reason);
  }

  #endIncoming(): void {
    const incoming = this.incoming;
    if (incoming.received !== incoming.final || incoming.ended || this.#state !== 'running') return;
    incoming.ended = true;
    this.user.ended();
    this.#acknowledge(false);
  }

  #wakeWriter(): void {
    this.askIfFull();
    if (!this.#writerWaits || !this.open || this.#state !== 'running') return;
    this.#writerWaits = false;
    this.user.mayWrite();
  }

  /** Completes the tunnel once each side has taken everything and seen the other's end. @returns whether it did so now */
  #completeIfDone(): boolean {
    const carrier = this.carrier;
    const incoming = this.incoming;
    if (this.#state !== 'running' || !carrier || !this.outgoing.done || !incoming.done) return false;
    this.#state = 'complete';
    this.#expireAfter(this.halves.timeoutMs);
    const last = incoming.untold > 0 ? this.newestMark : undefined;
    incoming.told = incoming.takenWithEnd;
    carrier.end(last);
    this.#tellOver(undefined);
    return true;
  }

  #violated(fault: string): void {
    this.abort(new PlaneEnded(`the other end of the tunnel is in disorder: ${fault}`));
  }
}
