import { RUNTIME, Waiting } from '@isthmus/runtime';
import type { Due } from '../deadlines.ts';
import { TUNNEL } from '../defaults.ts';
import type { DestinationEnd, EndUser } from '../end.ts';
import { PlaneEnded, SessionLost } from '../errors.ts';
import { type Carrier, encodeMark, type Mark, type Position, readMark, type StreamUser } from './carrier.ts';
import { GrowingLimit, type Halves, Outgoing } from './halves.ts';
import { waitAfter } from './processes.ts';

/**
 * - `running`: the tunnel carries bytes, or waits for a new carrier.
 * - `complete`: both sides have ended, and each has taken everything. The other half may not know it yet.
 * - `aborted`: the user ended the tunnel while there was no carrier. The other half may not know it yet.
 * - `gone`: nothing happens any more.
 */
type State = 'running' | 'complete' | 'aborted' | 'gone';

/**
 * One half of a tunnel that outlives its carriers: the tunnel's end here, and so what its socket is joined with. It hears the stream that
 * carries it. It keeps the bytes that it has sent until the socket at the other end has taken them. A new carrier first sends them again, and
 * then goes on. A half does no I/O. docs/RESUME.md says how two halves work together.
 */
export abstract class Half implements DestinationEnd, StreamUser, Due {
  readonly halfOpen = true;
  /** Whose share of the memory for kept bytes the half uses. */
  abstract readonly tenant: string;
  protected readonly halves: Halves;
  protected state: State = 'running';
  /** Unset while the tunnel waits for one. */
  protected carrier: Carrier | undefined;

  // What this side sends.
  protected readonly outgoing = new Outgoing();
  /** How many of these bytes the other half says that its socket has taken. One more once it has taken all, and the end: `Mark.taken`. */
  #acknowledged = 0;
  /** Whether nothing follows. */
  #ended = false;
  /** The last position that this half has asked about (`Mark.ask`). */
  #asks = 0;
  /** How many bytes may be unacknowledged before the writer has to wait. Unset until `Keeping.base` is reached, which is rare. */
  #keepLimit: GrowingLimit | undefined;
  /** So many may be unacknowledged before the writer has to wait because the carrier takes none now. */
  readonly #readAhead: number;
  /** Bytes that were written since the carrier had room. */
  #queued = 0;
  /** Whether the user waits for room, the half for its carrier to be open, and then for the tunnel's turn on its link. */
  #userWaits = false;
  #writerWaits = false;
  #awaitsTurn = false;

  // What comes.
  /** How many bytes have arrived. */
  protected received = 0;
  /** How many of them the socket here has taken. */
  protected taken = 0;
  /** The position of the other side's end, once it is known. */
  #final: number | undefined;
  /** The last position of taken bytes that the other half was told, and the last that it has asked about. */
  #told = 0;
  #asked = 0;
  /** The position of the carrier's next byte. Lower than `received` while the carrier repeats bytes of an earlier one. */
  #carrierAt = 0;
  /** Bytes of the present carrier that the user has got, and for which its window has not opened again. */
  #unread = 0;
  /** What has come and waits for the user. */
  #waiting: Waiting | undefined;

  // Who is told.
  /** Unset before `use`, and again once it was told that the tunnel is over. */
  #user: EndUser | undefined;
  /** Whether the user wants what comes. */
  #flows = false;
  /** Whether the user was told the other side's end, and that the other half has taken everything. */
  #endTold = false;
  #finished = false;
  /** Whether the tunnel is over for the user, and why. Waits for `use` if need be. */
  #closed: { readonly failure: Error | undefined } | undefined;
  /** Called once it is finished, once the other half has taken everything so far, and once it is over for the user. */
  #whenFinished: (() => void) | undefined;
  #whenTaken: (() => void) | undefined;
  #whenLeft: (() => void) | undefined;

  // How long it may last.
  /** For the sweep. */
  before: Due | undefined;
  behind: Due | undefined;
  due = Number.POSITIVE_INFINITY;
  /** When the half ends, and why, unless it hears of the other one before. Set by the loss of a carrier, and once the tunnel is complete. */
  #deadline: { readonly at: number; readonly reason?: Error } | undefined;
  /** Why the user has ended the tunnel, where no carrier was there to tell the other half. */
  protected untoldEnd: Error | undefined;

  /** @param readAhead how many bytes it takes although its carrier takes none */
  constructor(halves: Halves, readAhead = 0) {
    this.halves = halves;
    this.#readAhead = readAhead;
  }

  /** Bytes that a new carrier would have to send again. */
  get kept(): number {
    return this.outgoing.bytes;
  }

  /** Grows with each byte that a socket takes, at either end. */
  get progress(): number {
    return this.taken + Math.min(this.#acknowledged, this.outgoing.to);
  }

  get attached(): boolean {
    return this.carrier !== undefined && this.state !== 'gone';
  }

  get detached(): boolean {
    return !this.attached;
  }

  /** Begins with the stream that the dial was answered on. */
  start(carrier: Carrier): void {
    this.carrier = carrier;
    carrier.deliverTo(this);
  }

  // What the user says.

  use(user: EndUser): void {
    const over = this.#closed;
    if (over) {
      queueMicrotask(() => user.onClose(over.failure));
      return;
    }
    this.#user = user;
    this.#flows = true;
    if (this.#waiting || this.received === this.#final) queueMicrotask(() => this.#tell());
  }

  /**
   * Sends bytes. They go on their way, or wait for it, however many there are: a write may exceed the limit.
   * @throws RangeError if it exceeds twice `Keeping.most`, because the other half accepts no more
   */
  write(bytes: Uint8Array): boolean {
    const { outgoing } = this;
    if (this.state !== 'running' || this.#ended || bytes.length === 0) return true;
    const { most, ahead } = this.halves.keeping;
    const unacknowledged = outgoing.to - this.#acknowledged;
    if (unacknowledged + bytes.length > 2 * most)
      throw new RangeError(
        `${bytes.length} bytes were written with ${unacknowledged} unacknowledged: the most is ${most}`,
      );
    const kept = outgoing.add(bytes);
    this.carrier?.stream.write(kept);
    const hasRoom = this.#hasRoom();
    if (!hasRoom) this.#writerWaits = true;
    if ((hasRoom && !this.#awaitsTurn) || outgoing.to - this.#acknowledged < this.#readAhead) return true;
    this.#queued += bytes.length;
    this.#userWaits = this.#queued >= ahead;
    return !this.#userWaits;
  }

  /**
   * Whether what is written leaves at once. If the limit is reached by what has left, it grows, or the other half is asked to acknowledge at
   * once.
   */
  #hasRoom(): boolean {
    const { carrier, outgoing } = this;
    const { keeping } = this.halves;
    if (this.state !== 'running' || (carrier && carrier.stream.pending > 0)) return false;
    const unacknowledged = outgoing.to - this.#acknowledged;
    if (unacknowledged >= (this.#keepLimit?.bytes ?? keeping.base)) {
      this.#keepLimit ??= new GrowingLimit(keeping, this.tenant);
      if (!this.#keepLimit.grow()) {
        if (this.#asks <= this.#acknowledged) this.#ask();
        return false;
      }
      if (unacknowledged >= this.#keepLimit.bytes) return false;
    }
    return carrier !== undefined;
  }

  /** Asks the other half to say once it has taken all so far. */
  #ask(): void {
    this.#asks = this.outgoing.to;
    this.#sendMark();
  }

  finish(): void {
    if (this.state !== 'running' || this.#ended) return;
    this.#ended = true;
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
    return this.state === 'running' ? Math.min(this.#queued, Math.max(0, this.outgoing.to - this.#acknowledged)) : 0;
  }

  whenFinished(then: () => void): void {
    if (this.#finished) then();
    else this.#whenFinished = then;
  }

  /** Calls back once the other half has taken everything that was sent; at once if the tunnel has ended. */
  whenDelivered(then: () => void): void {
    if (this.state !== 'running' || this.#acknowledged >= this.outgoing.to) {
      then();
      return;
    }
    this.#whenTaken = then;
    this.#ask();
  }

  /** Called for one counter at most. */
  whenLeft(left: () => void): void {
    if (this.#closed) left();
    else this.#whenLeft = left;
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
      carrier.drop(reason);
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
  }

  #tellEnd(): void {
    const isWhole = this.received === this.#final && !this.#waiting;
    if (!isWhole || this.#endTold || !this.#flows || this.#closed) return;
    this.#endTold = true;
    this.#user?.onEnd();
    if (this.#finished) this.#close(undefined);
  }

  #finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    const then = this.#whenFinished;
    this.#whenFinished = undefined;
    then?.();
    if (this.#endTold) this.#close(undefined);
  }

  #close(failure: Error | undefined): void {
    if (this.#closed) return;
    this.#closed = { failure };
    this.#waiting = undefined;
    this.#whenTaken = undefined;
    this.#whenFinished = undefined;
    // The half may stay for a while, for the other half. It keeps neither the user nor its socket.
    const user = this.#user;
    this.#user = undefined;
    user?.onClose(failure);
    this.#whenLeft?.();
    this.#whenLeft = undefined;
  }

  /** The user's socket has taken this many of the delivered bytes. */
  #take(bytes: number): void {
    if (this.state !== 'running' || bytes === 0) return;
    this.taken += bytes;
    this.#unread += bytes;
    let opened = false;
    // Not before nothing waits: a window that opens as a slow reader takes a little of it would grow as a fast reader's does.
    if (!this.#waiting && this.#unread > 0) {
      opened = this.carrier?.stream.consume(this.#unread) === true;
      this.#unread = 0;
    }
    this.#acknowledge(opened);
  }

  // What the carrier's stream says.

  onData(bytes: Uint8Array): void {
    if (this.state !== 'running') return;
    const again = Math.min(Math.max(this.received - this.#carrierAt, 0), bytes.length);
    this.#carrierAt += bytes.length;
    this.received += bytes.length - again;
    if (again > 0) this.carrier?.stream.consume(again);
    if (again === bytes.length) return;
    if (this.received > (this.#final ?? Number.POSITIVE_INFINITY)) {
      this.#violated('it sends beyond its end');
      return;
    }
    this.#deadline = undefined;
    const fresh = again > 0 ? bytes.subarray(again) : bytes;
    if (!this.#flows || this.#waiting) {
      this.#waiting ??= new Waiting();
      this.#waiting.push(fresh);
      return;
    }
    this.#user?.onData(fresh);
    this.#tellEnd();
    this.#take(fresh.length);
  }

  onMark(payload: Uint8Array): void {
    if (this.state === 'gone') return;
    const mark = readMark(payload);
    if (!mark) {
      this.#violated('it sent a mark that cannot be read');
      return;
    }
    const before = this.#acknowledged;
    const fault = mark.taken < before ? `it took ${mark.taken} bytes, after ${before}` : this.faultOf(mark);
    if (fault !== undefined) {
      this.#violated(fault);
      return;
    }
    // The other half was heard: the carrier works.
    if (this.state === 'running') this.#deadline = undefined;
    this.#applyMark(mark);
  }

  onEnd(): void {
    const { carrier, state } = this;
    if (!carrier || state === 'gone') return;
    if (state === 'complete') {
      carrier.stream.endLate();
      this.disappear();
      return;
    }
    // The tunnel goes on with another carrier.
    this.lost(new SessionLost('the stream ended before the tunnel'));
    carrier.drop();
  }

  /** All bytes have left, or the other half has taken some: the writer may go on. */
  onWritable(): void {
    if (!this.#writerWaits) return;
    const hasRoom = this.#hasRoom();
    if (this.#awaitsTurn || !hasRoom) return;
    this.#writerWaits = false;
    // What a bulk writer writes next waits until it is the tunnel's turn on its link.
    this.#awaitsTurn = this.#queued >= RUNTIME.bulkWriteBytes;
    if (this.#awaitsTurn) this.carrier?.stream.awaitTurn(this);
    else this.writeMore();
  }

  /** It is the tunnel's turn. */
  writeMore(): void {
    this.#awaitsTurn = false;
    this.#writerWaits = !this.#hasRoom();
    if (this.#writerWaits) return;
    this.#queued = 0;
    if (!this.#userWaits) return;
    this.#userWaits = false;
    this.#user?.onDrain();
  }

  onClose(code: number | undefined, reason: Error | undefined): void {
    const loss = this.carrier?.closed(code, reason);
    if (loss?.ends) this.giveUp(loss.reason);
    else if (loss) this.lost(loss.reason);
  }

  /** The carrier is lost, and nobody has ended the tunnel. */
  protected lost(reason: Error): void {
    if (this.state === 'gone') return;
    this.carrier = undefined;
    this.#writerWaits = true;
    this.#awaitsTurn = false;
    this.expireAfter(waitAfter(reason, this.halves.timeoutMs), reason);
    this.onDetached(reason);
  }

  /** The sweep's call: sends the mark that has waited, and ends the half if its deadline has passed. */
  remind(): void {
    if (this.#newestMark.taken > this.#told) this.#sendMark();
    const deadline = this.#deadline;
    if (!deadline || this.state === 'gone') return;
    if (this.due < deadline.at) {
      this.#remindAt(deadline.at);
      return;
    }
    const { reason = new Error('the other end did not end the tunnel') } = deadline;
    this.carrier?.drop(this.state === 'running' ? reason : undefined);
    this.giveUp(reason);
  }

  // Positions, and the marks that tell the other half.

  /** What waits here does not count: it came on a carrier whose window bounds it, and the next one brings it again. */
  protected get position(): Position {
    return { received: this.taken, ...this.#newestMark };
  }

  get #newestMark(): Mark {
    const taken = this.taken === this.#final ? this.taken + 1 : this.taken;
    const mark: { -readonly [Key in keyof Mark]: Mark[Key] } = { taken };
    if (this.#ended) mark.final = this.outgoing.to;
    if (this.#asks > this.#acknowledged) mark.ask = this.#asks;
    return mark;
  }

  /** Returns why the other half's positions cannot be true. */
  protected faultOf({ taken, final, received = 0 }: Mark & Partial<Position>): string | undefined {
    const { to } = this.outgoing;
    if (taken > (this.#ended ? to + 1 : to)) return `it took ${taken} of ${to} bytes`;
    if (received > to) return `it got ${received} of ${to} bytes`;
    const fits = final === undefined || (final >= this.received && (this.#final ?? final) === final);
    return fits ? undefined : `it cannot end at byte ${final}`;
  }

  #sendMark(): void {
    if (!this.carrier) return;
    const mark = this.#newestMark;
    this.#told = mark.taken;
    this.carrier.stream.mark(encodeMark(mark));
  }

  // What the two kinds of halves do differently.

  /** Called for each carrier that was lost. */
  protected onDetached(_reason: Error): void {}
  /** Nothing needs the half any more. Called once, after it is over for the user. */
  protected abstract gone(): void;

  /**
   * Goes on with a new carrier. Check the other half's position first.
   * @param at the position of the first byte that the carrier brings
   */
  protected adopt(carrier: Carrier, { received, taken, final }: Position, at: number): void {
    const old = this.carrier;
    const { outgoing } = this;
    this.carrier = carrier;
    this.#carrierAt = at;
    this.received = this.taken;
    this.#waiting = undefined;
    this.#unread = 0;
    old?.drop();
    outgoing.release(outgoing.next(received));
    for (const chunk of outgoing.chunks()) carrier.stream.write(chunk);
    // The writer may have been waiting for its turn on the old carrier.
    this.#writerWaits = true;
    this.#awaitsTurn = false;
    this.#sendMark();
    // A mark on the old carrier may have acknowledged more already.
    this.#applyMark({ taken: Math.max(taken, this.#acknowledged), ...(final !== undefined && { final }) });
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
    this.halves.sweep.leave(this);
    this.#keepLimit?.shrink();
    this.gone();
  }

  /** The tunnel is over, and not in good order. */
  #over(reason: Error): void {
    this.outgoing.release(this.outgoing.to);
    this.#keepLimit?.shrink();
    this.#close(reason);
  }

  /**
   * Tells the other half what was taken: at once if it asked, if that is many bytes, or if this side has nothing more to send. Otherwise
   * the mark waits for the sweep, because this side's own end often follows soon, and its mark says both.
   * @param now whether to tell it at once in any case
   */
  #acknowledge(now: boolean): void {
    if (this.#completeIfDone()) return;
    const many = this.taken - this.#told >= TUNNEL.acknowledgeBytes;
    const isLast = this.#ended && this.taken === this.#final;
    const isAsked = this.#asked > this.#told && this.taken >= this.#asked;
    if (now || many || isLast || isAsked) this.#sendMark();
    else this.#remindAt(this.halves.clock.now() + TUNNEL.acknowledgeMs);
  }

  #applyMark({ taken, final, ask = 0 }: Mark): void {
    const { outgoing } = this;
    this.#acknowledged = taken;
    const isAll = taken >= outgoing.to;
    if (taken > outgoing.from) outgoing.release(Math.min(taken, outgoing.to));
    if (isAll) this.#keepLimit?.shrink();
    this.#asked = Math.max(this.#asked, ask);
    if (ask > this.#told && this.taken >= ask) this.#sendMark();
    if (final !== undefined && this.#final === undefined) {
      this.#final = final;
      if (this.received === final && this.state === 'running') {
        this.#tellEnd();
        this.#acknowledge(false);
      }
    }
    this.onWritable();
    if (this.#acknowledged > outgoing.to && this.state === 'running') this.#finish();
    this.#completeIfDone();
    if (!isAll || !this.#whenTaken) return;
    const then = this.#whenTaken;
    this.#whenTaken = undefined;
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

  /** Completes the tunnel once each side has taken everything and seen the other's end. @returns whether it did so now */
  #completeIfDone(): boolean {
    const { carrier } = this;
    const isDone = this.taken === this.#final && this.#acknowledged > this.outgoing.to;
    if (this.state !== 'running' || !carrier || !isDone) return false;
    this.state = 'complete';
    this.expireAfter(this.halves.timeoutMs);
    const last = this.#newestMark;
    carrier.stream.endLate(last.taken > this.#told ? encodeMark(last) : undefined);
    this.#told = last.taken;
    this.#finish();
    return true;
  }

  #violated(fault: string): void {
    const reason = new PlaneEnded(`the other end of the tunnel is in disorder: ${fault}`);
    this.carrier?.drop(reason);
    this.giveUp(reason);
  }
}
