import { guarding, memory } from '@isthmus/runtime';
import { type Deadlines, type Due, deadlines } from './deadlines.ts';
import { TUNNEL } from './defaults.ts';
import type { TunnelEnd, TunnelOutcome, TunnelSide } from './dial.ts';
import { type EndUser, type UsedEnd, UsedStream } from './end.ts';
import { type CutBy, PlaneEnded, planeEnded, type ReaderStalled, SessionLost } from './errors.ts';
import { type ByteMeter, FlowGate } from './limits/byte-meter.ts';

/**
 * Says how a tunnel ended, when something has ended it before: the first cause counts, except that a cut counts before the end of a caller that
 * still waits for the destination's.
 * @param answered whether the destination has ended
 */
function firstCause(before: TunnelOutcome, outcome: TunnelOutcome, answered: boolean): TunnelOutcome {
  if (before.how !== 'closed' || outcome.how === 'closed') return before;
  if (outcome.how === 'cut' && before.by === 'caller' && !answered) return outcome;
  return { how: 'failed', by: before.by, error: outcome.error };
}

/**
 * Whether a side that closes takes nothing from the other, because it had sent everything before. That is not so if the plane cuts it, but it is if
 * only the way to a destination is lost.
 */
function closesInOrder(side: TunnelSide, ended: boolean, failure: Error | undefined): boolean {
  if (failure instanceof SessionLost) return ended && side === 'destination';
  return ended && !(failure instanceof PlaneEnded);
}

/** What an idle tunnel has not done for a while. Times are milliseconds of `performance.now()`. */
interface Flow {
  readonly ended: boolean;
  readonly readAt: number;
}

/**
 * For how long a tunnel has been idle, in milliseconds: open in both directions, with nothing under way, and silent since it opened or since its
 * destination's last answer. So are connections that a caller keeps for its next request. A request without an answer is under way.
 * @param since when it opened, or last had no carrier
 */
function idleFor(caller: Flow, destination: Flow, start: number, since = start): number {
  if (caller.ended || destination.ended || caller.readAt > destination.readAt) return 0;
  if (destination.readAt - Math.max(caller.readAt, start) > TUNNEL.answerMs) return 0;
  return performance.now() - Math.max(caller.readAt, destination.readAt, since);
}

export interface SpliceOptions {
  /** Called once, when both sides have closed, and not before the constructor has returned. */
  readonly ended?: (outcome: TunnelOutcome) => void;
  /** Called for each write to the caller with the milliseconds it waited. If it did not wait: 0, and the clock is not read. */
  readonly written?: ((ms: number) => void) | undefined;
  /** Called when our own code threw, which ends the tunnel. */
  readonly fault?: (error: Error) => void;
  /** Decides when each side may be read on. Default: when the other side takes more. */
  readonly meter?: ByteMeter | undefined;
  /** Called when the meter ends the tunnel, because its reader has stalled. */
  readonly stalled?: () => void;
  /** How long it may be silent once a side has half-closed, in milliseconds. */
  readonly halfClosedMs?: number | undefined;
  /** Default: those of the process. */
  readonly deadlines?: Deadlines;
}

/** What a tunnel does next if nothing happens until it is due. */
type Late = 'cut' | 'close' | 'end';

/**
 * Copies bytes between a caller's end and a destination's end until both are closed.
 *
 * A side's EOF half-closes the other. A side that fails or vanishes before its EOF aborts the other, which first gets what was read. A cut by
 * the plane aborts both at once. If a side without half-close (`halfOpen` false) ends, or one that has ended goes away, the other gets what
 * is queued and is then closed. Nothing is buffered here: a full writer pauses its reader. An exception in our own code ends the tunnel, as
 * closed by the plane.
 */
export class Splice implements Due {
  /** Whether both halves of the tunnel are elsewhere. They may go on without this carrier, and the caller's half says what becomes of it. */
  readonly passesOn: boolean;
  readonly #options: SpliceOptions;
  readonly #start = performance.now();
  /** When a half last had no carrier, as far as anybody has asked. */
  #awayAt = 0;
  readonly #caller: Side;
  readonly #destination: Side;
  #outcome: TunnelOutcome | undefined;
  #isOver = false;
  #cut = false;
  /** What ends it because it was idle, and how many bytes its destination had said before. */
  #endsIdle: CutBy | undefined;
  #saidBefore = 0;
  /** For `Deadlines`: it is due only once a side has ended, or is to end. */
  before: Due | undefined;
  behind: Due | undefined;
  due = 0;
  #late: Late = 'cut';
  /** After so long it is due, in milliseconds. For a cut, after each chunk. */
  #patienceMs = 0;
  /** What sockets had taken when it was last made due. */
  #takenThen = 0;

  constructor(caller: TunnelEnd, destination: TunnelEnd, options: SpliceOptions = {}) {
    this.#options = options;
    this.passesOn = caller.passOn?.(destination) ?? false;
    this.#caller = new Side('caller', caller, this);
    this.#destination = new Side('destination', destination, this);
    this.#caller.other = this.#destination;
    this.#destination.other = this.#caller;
    this.#destination.written = options.written;
    if (options.meter) {
      this.#caller.gate = this.#gate(this.#caller, options.meter);
      this.#destination.gate = this.#gate(this.#destination, options.meter);
    }
    this.#caller.used.use(this.#caller);
    this.#destination.used.use(this.#destination);
  }

  #gate({ used: source, other: { used: sink } }: Side, meter: ByteMeter): FlowGate {
    const end = (reason: ReaderStalled) => {
      if (!this.#cut) this.#options.stalled?.();
      this.abort(reason);
    };
    const guarded = guarding((error) => this.failed(error));
    return new FlowGate(meter, { source, sink, detached: () => sink.detached, end, guarded });
  }

  /** Bytes from caller to destination. */
  get up(): number {
    return this.#caller.bytes;
  }

  /** Bytes from destination to caller. */
  get down(): number {
    return this.#destination.bytes;
  }

  /** The side that has ended while the other has not. */
  get halfClosed(): TunnelSide | undefined {
    const [caller, destination] = [this.#caller, this.#destination];
    if (caller.ended === destination.ended) return undefined;
    return caller.ended ? 'caller' : 'destination';
  }

  /** Bytes that wait in the writers of both directions. */
  get queued(): number {
    return this.#caller.used.writableLength + this.#destination.used.writableLength;
  }

  /** See `idleFor`. A half without a carrier hears nothing: the time begins anew once it has one. */
  get idleMs(): number {
    const [caller, destination] = [this.#caller, this.#destination];
    if (caller.used.detached || destination.used.detached) this.#awayAt = performance.now();
    if (this.#endsIdle || this.#cut || this.queued > 0 || caller.gate?.paused || destination.gate?.paused) return 0;
    return idleFor(caller, destination, this.#start, Math.max(this.#start, this.#awayAt));
  }

  /**
   * Ends an idle tunnel in order: the destination hears that nothing more comes, and once it has ended too, the caller. A request that comes
   * meanwhile cannot reach the destination any more, so it cuts the tunnel.
   * @param by what ends it, and then cuts it
   */
  endIdle(by: CutBy): void {
    this.#endsIdle = by;
    this.#saidBefore = this.#destination.bytes;
    this.#destination.used.finish(false);
    this.#wait(TUNNEL.goodbyeMs, 'end');
  }

  /** The destination of an idle tunnel did not end. If it spoke instead, or may have, nobody knows whether that was all. */
  #endForCaller(by: CutBy): void {
    const destination = this.#destination;
    if (destination.ended || !destination.open) return;
    if (destination.bytes > this.#saidBefore || destination.used.detached) {
      this.abort(new PlaneEnded('the destination spoke as the idle tunnel ended, and did not end it', { by }));
      return;
    }
    destination.ended = true;
    this.#settle({ how: 'closed', by: 'destination' });
    this.#caller.used.finish(false);
    destination.used.close();
  }

  /**
   * Cuts both sides at once; what is queued is lost. Every other part of the plane that carries the tunnel hears that the plane did so.
   * @param reason a PlaneEnded, if it is known what cuts it
   */
  abort(reason: Error): void {
    const cut = planeEnded(reason);
    this.#cut = true;
    const passedOn = this.passesOn && cut instanceof SessionLost;
    this.#settle(passedOn ? { how: 'failed', by: 'caller', error: cut } : { how: 'cut', by: cut.by, error: cut });
    for (const { open, end } of [this.#caller, this.#destination]) if (open) end.abort(cut);
  }

  #settle(outcome: TunnelOutcome): void {
    this.#outcome = this.#outcome ? firstCause(this.#outcome, outcome, this.#destination.ended) : outcome;
  }

  // What its sides say.

  /** Our own code threw. */
  failed(error: Error): void {
    this.abort(error);
    this.#options.fault?.(error);
  }

  /** Whether what a side has read may be written to the other. */
  mayPass({ side, readAt }: Side): boolean {
    if (this.#endsIdle && side === 'caller') {
      this.abort(new PlaneEnded('a request came as the idle tunnel ended', { by: this.#endsIdle }));
      return false;
    }
    if (this.before && this.#late === 'cut') this.due = readAt + this.#patienceMs;
    return true;
  }

  /** A side sends nothing more. */
  ended({ side, end, other }: Side): void {
    this.#settle({ how: 'closed', by: side });
    // First, because the other side may end and close as it finishes.
    if (end.halfOpen) this.#wait(this.#options.halfClosedMs ?? TUNNEL.halfClosedMs, 'cut');
    other.used.finish(other.ended);
    if (!end.halfOpen && other.open) this.#awaitClose(other.used);
  }

  /** A side has closed. After a clean close, the other side still gets what was written to it; otherwise it is aborted. */
  closed(gone: Side, failure: Error | undefined): void {
    const { side, other } = gone;
    // Where a carrier is only passed on, the halves say what its loss means.
    const orderly = closesInOrder(side, gone.ended, failure) && !(this.passesOn && failure instanceof SessionLost);
    // A side may close while it is cut, before the other one is.
    if (!orderly && !this.#cut) this.#fail(gone, failure ?? new Error(`${side} went away`));
    if (other.open) {
      if (orderly && !this.#cut) this.#awaitClose(other.used);
      return;
    }
    this.#end({ how: 'closed', by: side });
  }

  /** Both sides have closed. */
  #end(outcome: TunnelOutcome): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#deadlines.leave(this);
    for (const { gate } of [this.#caller, this.#destination]) gate?.close();
    this.#options.ended?.(this.#outcome ?? outcome);
  }

  /** A side failed, or was cut by the plane behind it. */
  #fail({ side, readAt, other }: Side, error: Error): void {
    if (error instanceof PlaneEnded) {
      this.abort(error);
      return;
    }
    this.#settle({ how: 'failed', by: side, error });
    if (!other.open) return;
    const { used, end, tookAt } = other;
    // Nobody wants what the other side still sends. What was read before is delivered first.
    used.pause();
    this.#wait(TUNNEL.halfClosedMs, 'cut');
    const cut = guarding((thrown) => this.failed(thrown))(() => end.abort(error));
    used.whenDelivered(cut, performance.now() - Math.max(readAt, tookAt));
  }

  /** Waits for a side to close, once the other is done for good. A slow reader gets everything written to it before `TUNNEL.lingerMs` starts. */
  #awaitClose(used: UsedEnd): void {
    let isFinished = false;
    used.whenFinished(() => {
      isFinished = true;
      this.#wait(TUNNEL.lingerMs, 'close');
    });
    if (!isFinished) this.#wait(TUNNEL.halfClosedMs, 'cut');
  }

  get #deadlines(): Deadlines {
    return this.#options.deadlines ?? deadlines;
  }

  /** Changes with each byte that a socket takes, here or beyond a half. */
  get #taken(): number {
    const [caller, destination] = [this.#caller.used, this.#destination.used];
    return caller.progress - caller.writableLength + destination.progress - destination.writableLength;
  }

  /** Waits for what is due next, and for nothing else. */
  #wait(ms: number, late: Late): void {
    if (!this.#caller.open && !this.#destination.open) return;
    const now = performance.now();
    const { before, due } = this;
    this.#late = late;
    this.#patienceMs = ms;
    this.#takenThen = this.#taken;
    this.due = now + ms;
    if (!before || this.due < due) this.#deadlines.enter(this);
  }

  remind(): void {
    try {
      if (this.#late === 'end') this.#endForCaller(this.#endsIdle as CutBy);
      else if (this.#late === 'close') this.#closeOpen();
      // What was copied long ago still arrives there.
      else if (this.#taken !== this.#takenThen) this.#wait(this.#patienceMs, 'cut');
      else this.abort(new PlaneEnded(`half-closed and silent for ${this.#patienceMs / 1000} s`, { by: 'limit' }));
    } catch (error) {
      this.failed(error as Error);
    }
  }

  /** Closes what is left after a clean end. Everything was written to it, and nobody needs what it still sends. */
  #closeOpen(): void {
    for (const side of [this.#caller, this.#destination]) {
      side.ended = true;
      side.used.close();
    }
  }
}

/** One side of a splice, as its end calls it. */
class Side implements EndUser {
  readonly side: TunnelSide;
  readonly end: TunnelEnd;
  readonly used: UsedEnd;
  readonly #splice: Splice;
  /** Set before its end is used. */
  other!: Side;
  /** Called for each write to the other side with the milliseconds that it waited. */
  written: SpliceOptions['written'];
  /** Decides when it is read on. */
  gate: FlowGate | undefined;
  /** True until its end has closed. */
  open = true;
  /** True once its last byte has been read. */
  ended = false;
  /** Bytes that were read from it. */
  bytes = 0;
  /** When something was last read from it, in milliseconds of `performance.now()`. */
  readAt = 0;
  /** When it last took the rest of what had waited for it. */
  tookAt = 0;
  /** Since when the other side takes no more. Unset while it does. */
  #waitsSince: number | undefined;

  constructor(side: TunnelSide, end: TunnelEnd, splice: Splice) {
    this.side = side;
    this.end = end;
    this.used = end.used ?? new UsedStream(end.stream, end);
    this.#splice = splice;
  }

  onData(chunk: Uint8Array): void {
    try {
      this.bytes += chunk.length;
      this.readAt = performance.now();
      memory.read(chunk.length);
      if (!this.#splice.mayPass(this)) return;
      const room = this.other.used.write(chunk);
      this.gate?.afterRead(chunk.length, room);
      if (room) {
        this.written?.(0);
        return;
      }
      this.#waitsSince ??= performance.now();
      this.used.pause();
    } catch (error) {
      this.#splice.failed(error as Error);
    }
  }

  onDrain(): void {
    const { other } = this;
    try {
      this.tookAt = performance.now();
      if (other.#waitsSince !== undefined) other.written?.(this.tookAt - other.#waitsSince);
      other.#waitsSince = undefined;
      if (other.gate?.drained() !== false) other.used.resume();
    } catch (error) {
      this.#splice.failed(error as Error);
    }
  }

  onEnd(): void {
    try {
      this.ended = true;
      this.#splice.ended(this);
    } catch (error) {
      this.#splice.failed(error as Error);
    }
  }

  onClose(failure?: Error): void {
    if (!this.open) return;
    this.open = false;
    try {
      this.#splice.closed(this, failure);
    } catch (error) {
      this.#splice.failed(error as Error);
    }
  }
}
