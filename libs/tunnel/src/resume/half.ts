import { RUNTIME, Waiting } from '@isthmus/runtime';
import type { Due } from '../deadlines.ts';
import { TUNNEL } from '../defaults.ts';
import type { DestinationEnd, EndUser } from '../end.ts';
import { PlaneEnded, SessionLost } from '../errors.ts';
import type { Carrier, CarrierUser, Mark, Position } from './carrier.ts';
import { waitAfter } from './dead-or-lost.ts';
import { GrowingLimit, type Halves } from './halves.ts';
import { Incoming, Outgoing } from './positions.ts';

/**
 * - `running`: the tunnel carries bytes, or waits for a new carrier.
 * - `complete`: both sides have ended, and each has taken everything. The other half may not know it yet.
 * - `aborted`: the user ended the tunnel while there was no carrier. The other half may not know it yet.
 * - `gone`: nothing happens any more.
 */
type State = 'running' | 'complete' | 'aborted' | 'gone';

/**
 * One half of a tunnel that outlives its carriers: the tunnel's end here, and so what its socket is joined with. It keeps the bytes that it has
 * sent until the socket at the other end has taken them. A new carrier first sends them again, and then goes on. A half does no I/O.
 * docs/RESUME.md says how two halves work together.
 */
export abstract class Half implements DestinationEnd, CarrierUser, Due {
  readonly halfOpen = true;
  /** Whose share of the memory for kept bytes the half uses. */
  abstract readonly tenant: string;
  protected readonly halves: Halves;
  protected readonly outgoing = new Outgoing();
  protected readonly incoming = new Incoming();
  /** Unset while the half is detached. */
  protected carrier: Carrier | undefined;
  /** How many bytes may be unacknowledged before the writer has to wait. Unset until `Keeping.base` is reached, which is rare. */
  #keepLimit: GrowingLimit | undefined;
  /** For the sweep. */
  before: Due | undefined;
  behind: Due | undefined;
  due = Number.POSITIVE_INFINITY;
  protected state: State = 'running';
  /** Who is told what comes. Unset before `use`, and again once it was told that the tunnel is over. */
  #user: EndUser | undefined;
  /** Whether the user wants what comes. */
  #flows = false;
  /** What has come and waits for the user. */
  #waiting: Waiting | undefined;
  /** Bytes of the present carrier that the user has got, and for which its window has not opened again. */
  #unread = 0;
  /** Whether the user was told the other side's end. */
  #endTold = false;
  /** Whether the other half has taken all bytes of this side, and its end, or never will. */
  #finished = false;
  /** Whether the tunnel is over for the user, and why. Waits for `use` if need be. */
  #closed: { readonly failure: Error | undefined } | undefined;
  /** Called once it is finished, and once it is over for the user. */
  #whenFinished: (() => void) | undefined;
  #left: (() => void) | undefined;
  /** Bytes that were written since the carrier had room. */
  #queued = 0;
  /** Whether the user waits for room, the half for its carrier to be open, and then for the tunnel's turn on its link. */
  #userWaits = false;
  #writerWaits = false;
  #awaitsTurn = false;
  /** Waits until the other half has taken everything. */
  #taken: (() => void) | undefined;
  /** Why the user has ended the tunnel, where no carrier was there to tell the other half. */
  protected untoldEnd: Error | undefined;
  /** When the half ends, and why, unless it hears of the other one before. Set by the loss of a carrier, and once the tunnel is complete. */
  #deadline: { readonly at: number; readonly reason?: Error } | undefined;

  constructor(halves: Halves) {
    this.halves = halves;
  }

  /** Whether what is written leaves at once, or may wait here however long. */
  get open(): boolean {
    return this.carrier?.drained === true && !this.#full;
  }

  /** Whether the other half must acknowledge bytes before more may be written. */
  get #full(): boolean {
    return this.outgoing.unacknowledged >= (this.#keepLimit?.bytes ?? this.halves.keeping.base);
  }

  /** Bytes that a new carrier would have to send again. */
  get kept(): number {
    return this.outgoing.bytes;
  }

  /** Grows with each byte that a socket takes, at either end. */
  get progress(): number {
    return this.incoming.taken + this.outgoing.acknowledged;
  }

  get attached(): boolean {
    return this.carrier !== undefined;
  }

  get detached(): boolean {
    return this.carrier === undefined;
  }

  /** Begins with the stream that the dial was answered on. */
  start(carrier: Carrier): void {
    this.carrier = carrier;
    carrier.deliverTo(this);
  }

  // What the user says.

  use(user: EndUser): void {
    this.#user = user;
    this.#flows = true;
    if (this.#waiting || this.incoming.ended || this.#closed) queueMicrotask(() => this.#tell());
  }

  /**
   * Sends bytes. They go on their way, or wait for it, however many there are: a write may exceed the limit.
   * @throws RangeError if it exceeds twice `Keeping.most`, because the other half accepts no more
   */
  write(bytes: Uint8Array): boolean {
    const { outgoing, halves } = this;
    if (this.state !== 'running' || outgoing.ended || bytes.length === 0) return true;
    const { most, ahead } = halves.keeping;
    if (outgoing.unacknowledged + bytes.length > 2 * most)
      throw new RangeError(
        `${bytes.length} bytes were written with ${outgoing.unacknowledged} unacknowledged: the most is ${most}`,
      );
    const kept = outgoing.add(bytes);
    this.carrier?.data(kept);
    this.#askIfFull();
    const isOpen = this.open;
    if (!isOpen) this.#writerWaits = true;
    if ((isOpen && !this.#awaitsTurn) || this.readsAhead) return true;
    this.#queued += bytes.length;
    this.#userWaits = this.#queued >= ahead;
    return !this.#userWaits;
  }

  finish(): void {
    if (this.state !== 'running' || this.outgoing.ended) return;
    this.outgoing.ended = true;
    this.#sendMark();
  }

  pause(): void {
    this.#flows = false;
  }

  resume(): void {
    if (this.#flows) return;
    this.#flows = true;
    this.#tell();
  }

  get writableLength(): number {
    return Math.min(this.#queued, this.outgoing.unacknowledged);
  }

  whenFinished(then: () => void): void {
    if (this.#finished) then();
    else this.#whenFinished = then;
  }

  /** Calls back once the other half has taken everything that was sent; at once if the tunnel has ended. */
  whenDelivered(then: () => void): void {
    const outgoing = this.outgoing;
    if (this.state !== 'running' || outgoing.unacknowledged === 0) {
      then();
      return;
    }
    this.#taken = then;
    outgoing.ask = outgoing.to;
    this.#sendMark();
  }

  /** Called for one counter at most. */
  whenLeft(left: () => void): void {
    if (this.#closed) left();
    else this.#left = left;
  }

  close(): void {
    if (this.#closed) return;
    // A tunnel that has ended both ways is complete, even if the other half cannot be told yet.
    if (this.state === 'running' && !(this.#endTold && this.#finished)) this.abort(new Error('it went away'));
    else this.#close(undefined);
  }

  /** Ends the tunnel, for the other half too. Once the tunnel is complete, it is over for the user alone. */
  abort(reason: Error): void {
    if (this.state !== 'running') {
      this.#close(reason);
      return;
    }
    const carrier = this.carrier;
    if (carrier) {
      carrier.abort(reason);
      this.giveUp(reason);
      return;
    }
    this.state = 'aborted';
    this.untoldEnd = reason;
    this.#over(reason);
  }

  // What the user is told.

  /** Tells what has waited, as far as the user wants it. */
  #tell(): void {
    const waiting = this.#waiting;
    let delivered = 0;
    while (this.#flows && waiting && waiting.length > 0 && !this.#closed) {
      const piece = waiting.shift() as Uint8Array;
      delivered += piece.length;
      this.#user?.onData(piece);
    }
    if (waiting?.length === 0) this.#waiting = undefined;
    this.#tellEnd();
    this.#take(delivered);
    if (this.#closed) this.#tellClosed(this.#closed.failure);
  }

  #deliver(bytes: Uint8Array): void {
    if (this.#flows && !this.#waiting) {
      this.#user?.onData(bytes);
      this.#take(bytes.length);
    } else {
      this.#waiting ??= new Waiting();
      this.#waiting.push(bytes);
    }
  }

  #tellEnd(): void {
    if (!this.incoming.ended || this.#endTold || this.#waiting || !this.#flows || this.#closed) return;
    this.#endTold = true;
    this.#user?.onEnd();
    this.#closeIfEnded();
  }

  #finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    const then = this.#whenFinished;
    this.#whenFinished = undefined;
    then?.();
    this.#closeIfEnded();
  }

  #closeIfEnded(): void {
    if (this.#endTold && this.#finished) this.#close(undefined);
  }

  #close(failure: Error | undefined): void {
    if (this.#closed) return;
    this.#closed = { failure };
    this.#waiting = undefined;
    this.#taken = undefined;
    this.#whenFinished = undefined;
    this.#tellClosed(failure);
    this.#left?.();
    this.#left = undefined;
  }

  /** The half may stay for a while, for the other half. It keeps neither the user nor its socket. */
  #tellClosed(failure: Error | undefined): void {
    const user = this.#user;
    this.#user = undefined;
    user?.onClose(failure);
  }

  /** The user's socket has taken this many of the delivered bytes. */
  #take(bytes: number): void {
    if (this.state !== 'running' || bytes === 0) return;
    this.incoming.take(bytes);
    this.#unread += bytes;
    let opened = false;
    // Not before nothing waits: a window that opens as a slow reader takes a little of it would grow as a fast reader's does.
    if (!this.#waiting && this.#unread > 0) {
      opened = this.carrier?.consume(this.#unread) === true;
      this.#unread = 0;
    }
    this.#acknowledge(opened);
  }

  // What the carrier brings. Earlier carriers are ignored.

  data(carrier: Carrier, bytes: Uint8Array): void {
    if (carrier !== this.carrier || this.state !== 'running') return;
    const again = this.incoming.arrive(bytes.length);
    if (again > 0) carrier.consume(again);
    if (again === bytes.length) return;
    const { received, final = Number.POSITIVE_INFINITY } = this.incoming;
    if (received > final) {
      this.#violated('it sends beyond its end');
      return;
    }
    this.#deadline = undefined;
    this.#deliver(again > 0 ? bytes.subarray(again) : bytes);
    this.#endIncoming();
  }

  mark(carrier: Carrier, mark: Mark): void {
    if (carrier !== this.carrier || this.state === 'gone') return;
    const before = this.outgoing.acknowledgedWithEnd;
    const fault = mark.taken < before ? `it took ${mark.taken} bytes, after ${before}` : this.faultOf(mark);
    if (fault !== undefined) {
      this.#violated(fault);
      return;
    }
    // The other half was heard: the carrier works.
    if (this.state === 'running') this.#deadline = undefined;
    this.#applyMark(mark);
  }

  drained(carrier: Carrier): void {
    if (carrier === this.carrier) this.#wakeWriter();
  }

  ended(carrier: Carrier): void {
    if (carrier !== this.carrier) return;
    if (this.state === 'complete') {
      carrier.end();
      this.disappear();
      return;
    }
    // The tunnel goes on with another carrier.
    this.lost(carrier, new SessionLost('the stream ended before the tunnel'));
    carrier.drop();
  }

  aborted(carrier: Carrier, reason: Error): void {
    if (carrier === this.carrier) this.giveUp(reason);
  }

  lost(carrier: Carrier, reason: Error): void {
    if (carrier !== this.carrier || this.state === 'gone') return;
    this.carrier = undefined;
    this.#writerWaits = true;
    this.#awaitsTurn = false;
    this.expireAfter(waitAfter(reason, this.halves.timeoutMs), reason);
    this.onDetached(reason);
  }

  /** The sweep's call: sends the mark that has waited, and ends the half if its deadline has passed. */
  remind(): void {
    if (this.incoming.untold > 0) this.#sendMark();
    const deadline = this.#deadline;
    if (!deadline || this.state === 'gone') return;
    if (this.due < deadline.at) {
      this.#remindAt(deadline.at);
      return;
    }
    const { reason = new Error('the other end did not end the tunnel') } = deadline;
    if (this.state === 'running') this.carrier?.abort(reason);
    else this.carrier?.drop();
    this.giveUp(reason);
  }

  // Positions, and the marks that tell the other half.

  /** What waits here does not count: it came on a carrier whose window bounds it, and the next one brings it again. */
  protected get position(): Position {
    return { received: this.incoming.taken, ...this.#newestMark };
  }

  get #newestMark(): Mark {
    const { ended, to, acknowledged, ask } = this.outgoing;
    const mark: { -readonly [Key in keyof Mark]: Mark[Key] } = { taken: this.incoming.takenWithEnd };
    if (ended) mark.final = to;
    if (ask > acknowledged) mark.ask = ask;
    return mark;
  }

  /** Returns why the other half's positions cannot be true. */
  protected faultOf({ taken, final, received }: Mark & Partial<Position>): string | undefined {
    return this.outgoing.faultOf(taken, received) ?? this.incoming.faultOf(final);
  }

  #sendMark(): void {
    if (!this.carrier) return;
    this.incoming.told = this.incoming.takenWithEnd;
    this.carrier.mark(this.#newestMark);
  }

  /** If the limit is reached by what has left, and cannot grow, asks the other half to acknowledge at once. */
  #askIfFull(): void {
    const { outgoing } = this;
    if (!this.#full || this.carrier?.drained === false) return;
    this.#keepLimit ??= new GrowingLimit(this.halves.keeping, this.tenant);
    if (this.#keepLimit.grow() || outgoing.ask > outgoing.acknowledged) return;
    outgoing.ask = outgoing.to;
    this.#sendMark();
  }

  // What the two kinds of halves do differently.

  /** Called for each carrier that was lost. */
  protected onDetached(_reason: Error): void {}
  /** Nothing needs the half any more. Called once, after it is over for the user. */
  protected abstract gone(): void;
  /** Whether more may be written although the carrier takes none now. */
  protected abstract get readsAhead(): boolean;

  /**
   * Goes on with a new carrier. Check the other half's position first.
   * @param at the position of the first byte that the carrier brings
   */
  protected adopt(carrier: Carrier, { received, taken, final }: Position, at: number): void {
    const old = this.carrier;
    const outgoing = this.outgoing;
    this.carrier = carrier;
    this.incoming.goOn(at);
    this.#waiting = undefined;
    this.#unread = 0;
    old?.drop();
    outgoing.release(outgoing.next(received));
    for (const chunk of outgoing.chunks()) carrier.data(chunk);
    // The writer may have been waiting for its turn on the old carrier.
    this.#writerWaits = true;
    this.#awaitsTurn = false;
    this.#sendMark();
    // A mark on the old carrier may have acknowledged more already.
    this.#applyMark({ taken: Math.max(taken, outgoing.acknowledgedWithEnd), ...(final !== undefined && { final }) });
    carrier.deliverTo(this);
  }

  /** Ends the half, and the tunnel if it had not ended. */
  protected giveUp(reason: Error): void {
    if (this.state === 'running') {
      this.state = 'aborted';
      this.#over(reason);
    }
    this.disappear();
  }

  protected disappear(): void {
    if (this.state === 'gone') return;
    this.state = 'gone';
    this.carrier = undefined;
    this.halves.sweep.leave(this);
    this.#keepLimit?.shrink();
    this.gone();
  }

  /** The tunnel is over. @param reason unset if both sides have ended, and each has taken everything */
  #over(reason: Error | undefined): void {
    this.outgoing.release(this.outgoing.to);
    this.#keepLimit?.shrink();
    if (reason) this.#close(reason);
    else this.#finish();
  }

  /**
   * Tells the other half what was taken: at once if it asked, if that is many bytes, or if this side has nothing more to send. Otherwise
   * the mark waits for the sweep, because this side's own end often follows soon, and its mark says both.
   * @param now whether to tell it at once in any case
   */
  #acknowledge(now: boolean): void {
    const incoming = this.incoming;
    if (this.#completeIfDone()) return;
    const many = incoming.untold >= TUNNEL.acknowledgeBytes;
    if (now || many || incoming.isAsked || (incoming.done && this.outgoing.ended)) this.#sendMark();
    else this.#remindAt(this.halves.clock.now() + TUNNEL.acknowledgeMs);
  }

  #applyMark({ taken, final, ask = 0 }: Mark): void {
    const [incoming, outgoing] = [this.incoming, this.outgoing];
    outgoing.acknowledge(taken);
    const isAll = outgoing.acknowledged === outgoing.to;
    if (isAll) this.#keepLimit?.shrink();
    if (ask > incoming.asked) incoming.asked = ask;
    if (incoming.isAsked) this.#sendMark();
    if (final !== undefined && incoming.final === undefined) {
      incoming.final = final;
      this.#endIncoming();
    }
    this.#wakeWriter();
    if (outgoing.done && this.state === 'running') this.#finish();
    this.#completeIfDone();
    if (!isAll || !this.#taken) return;
    const then = this.#taken;
    this.#taken = undefined;
    then();
  }

  /** Ends the half after this time, or when it would end anyway, unless the other half is heard before. */
  expireAfter(ms: number, reason?: Error): void {
    const at = this.halves.clock.now() + ms;
    if (at >= (this.#deadline?.at ?? Number.POSITIVE_INFINITY)) return;
    this.#deadline = { at, ...(reason && { reason }) };
    this.#remindAt(at);
  }

  /** Unless it is reminded sooner. */
  #remindAt(at: number): void {
    if (this.before && this.due <= at) return;
    this.due = at;
    this.halves.sweep.enter(this);
  }

  #endIncoming(): void {
    const incoming = this.incoming;
    if (incoming.received !== incoming.final || incoming.ended || this.state !== 'running') return;
    incoming.end();
    this.#tellEnd();
    this.#acknowledge(false);
  }

  #wakeWriter(): void {
    if (!this.#writerWaits) return;
    this.#askIfFull();
    if (this.#awaitsTurn || !this.open || this.state !== 'running') return;
    this.#writerWaits = false;
    // What a bulk writer writes next waits until it is the tunnel's turn on its link.
    this.#awaitsTurn = this.#queued >= RUNTIME.bulkWriteBytes;
    if (this.#awaitsTurn) this.carrier?.awaitTurn(this);
    else this.writeMore();
  }

  /** It is the tunnel's turn. */
  writeMore(): void {
    this.#awaitsTurn = false;
    this.#writerWaits = !this.open;
    if (this.#writerWaits) return;
    this.#queued = 0;
    if (!this.#userWaits) return;
    this.#userWaits = false;
    this.#user?.onDrain();
  }

  /** Completes the tunnel once each side has taken everything and seen the other's end. @returns whether it did so now */
  #completeIfDone(): boolean {
    const carrier = this.carrier;
    const incoming = this.incoming;
    if (this.state !== 'running' || !carrier || !this.outgoing.done || !incoming.done) return false;
    this.state = 'complete';
    this.expireAfter(this.halves.timeoutMs);
    const last = incoming.untold > 0 ? this.#newestMark : undefined;
    incoming.told = incoming.takenWithEnd;
    carrier.end(last);
    this.#over(undefined);
    return true;
  }

  #violated(fault: string): void {
    this.abort(new PlaneEnded(`the other end of the tunnel is in disorder: ${fault}`));
  }
}
