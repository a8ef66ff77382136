import type { Duplex } from 'node:stream';
import { endAfterPeer, type Guarded, guarding, memory, writerOf } from '@isthmus/runtime';
import { TUNNEL } from './defaults.ts';
import type { MarkStream, TunnelEnd } from './dial.ts';
import { type CutBy, PlaneEnded, planeEnded, type ReaderStalled, SessionLost } from './errors.ts';
import type { TunnelOutcome, TunnelSide } from './events.ts';
import { type ByteMeter, FlowGate } from './limits/byte-meter.ts';

const NOTHING = new Uint8Array(0);

interface WatchedEnd {
  readonly side: TunnelSide;
  readonly end: TunnelEnd;
  /** True until its stream has closed. */
  open: boolean;
  /** True once its last byte has been read. */
  ended: boolean;
  /** Bytes that were read from it. */
  bytes: number;
  /** When something was last read from it, in milliseconds of `performance.now()`. */
  readAt: number;
  /** When it last took the rest of what had waited for it. */
  tookAt: number;
}

interface SpliceOptions {
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
}

/**
 * Copies bytes between a caller's end and a destination's end until both are closed.
 *
 * A side's EOF half-closes the other. A side that fails or vanishes before its EOF aborts the other, which first gets what was read. A cut by
 * the plane aborts both at once. If a side without half-close (`halfOpen` false) ends, or one that has ended goes away, the other gets what
 * is queued and is then closed. Nothing is buffered here: a full writer pauses its reader.
 */
export class Splice {
  /** Wraps each callback so that it never throws: an exception in our own code ends the tunnel, closed by the plane. */
  readonly guarded: Guarded;
  readonly #done = Promise.withResolvers<TunnelOutcome>();
  readonly done = this.#done.promise;
  readonly #start = performance.now();
  /** When a half last had no carrier, as far as anybody has asked. */
  #awayAt = 0;
  readonly #caller: WatchedEnd;
  readonly #destination: WatchedEnd;
  #outcome: TunnelOutcome | undefined;
  #cut = false;
  /** What ends it because it was idle. */
  #endsIdle: CutBy | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Whether the timer restarts with each chunk. */
  #restarts = false;
  readonly #halfClosedMs: number;

  constructor(caller: TunnelEnd, destination: TunnelEnd, options: SpliceOptions = {}) {
    const { written, fault, halfClosedMs = TUNNEL.halfClosedMs } = options;
    this.#halfClosedMs = halfClosedMs;
    this.guarded = guarding((error) => {
      this.abort(error);
      fault?.(error);
    });
    const begun = { open: true, ended: false, bytes: 0, readAt: 0, tookAt: 0 };
    this.#caller = { side: 'caller', end: caller, ...begun };
    this.#destination = { side: 'destination', end: destination, ...begun };
    this.#watch(this.#caller, this.#destination);
    this.#watch(this.#destination, this.#caller);
    this.#copy(this.#caller, this.#destination, undefined, this.#gate(caller, destination, options));
    this.#copy(this.#destination, this.#caller, written, this.#gate(destination, caller, options));
    this.#passMarks(caller.marks, destination.marks);
  }

  #gate(from: TunnelEnd, to: TunnelEnd, { meter, stalled }: SpliceOptions): FlowGate | undefined {
    if (!meter) return undefined;
    const end = (reason: ReaderStalled) => {
      if (!this.#cut) stalled?.();
      this.abort(reason);
    };
    const detached = () => isDetached(to);
    const gate = new FlowGate(meter, { source: from.stream, sink: to.stream, detached, end, guarded: this.guarded });
    void this.done.then(() => gate.close());
    return gate;
  }

  /** Bytes from caller to destination. */
  get up(): number {
    return this.#caller.bytes;
  }

  /** Bytes from destination to caller. */
  get down(): number {
    return this.#destination.bytes;
  }

  /** Whether both halves of the tunnel are elsewhere. They may go on without this carrier, and the caller's half says what becomes of it. */
  get passesOn(): boolean {
    return this.#caller.end.marks !== undefined && this.#destination.end.marks !== undefined;
  }

  #passMarks(caller: MarkStream | undefined, destination: MarkStream | undefined): void {
    if (!caller || !destination) return;
    caller.onMarks(this.guarded((payload: Uint8Array) => destination.mark(payload)));
    destination.onMarks(this.guarded((payload: Uint8Array) => caller.mark(payload)));
  }

  /** The side that has ended while the other has not. */
  get halfClosed(): TunnelSide | undefined {
    const [caller, destination] = [this.#caller, this.#destination];
    if (caller.ended === destination.ended) return undefined;
    return caller.ended ? 'caller' : 'destination';
  }

  /** Bytes that wait in the writers of both directions. */
  get queued(): number {
    return this.#caller.end.stream.writableLength + this.#destination.end.stream.writableLength;
  }

  /**
   * For how long the tunnel has been idle, in milliseconds: open in both directions, with nothing under way, and silent since it opened or
   * since its destination's last answer. So are connections that a caller keeps for its next request. A request without an answer is under
   * way, and a half without a carrier hears nothing: the time begins anew once it has one.
   */
  get idleMs(): number {
    const [caller, destination] = [this.#caller, this.#destination];
    if (isDetached(caller.end) || isDetached(destination.end)) this.#awayAt = performance.now();
    if (caller.readAt > destination.readAt) return 0;
    if (caller.ended || destination.ended || this.#endsIdle || this.#cut || this.queued > 0) return 0;
    if (destination.readAt - Math.max(caller.readAt, this.#start) > TUNNEL.answerMs) return 0;
    return performance.now() - Math.max(caller.readAt, destination.readAt, this.#start, this.#awayAt);
  }

  /**
   * Ends an idle tunnel in order: the destination hears that nothing more comes, and once it has ended too, the caller. A request that comes
   * meanwhile cannot reach the destination any more, so it cuts the tunnel.
   * @param by what ends it, and then cuts it
   */
  endIdle(by: CutBy): void {
    const destination = this.#destination;
    this.#endsIdle = by;
    destination.end.stream.end();
    const late = () => {
      if (destination.ended || !destination.open) return;
      destination.ended = true;
      this.#settle({ how: 'closed', by: 'destination' });
      this.#caller.end.stream.end();
      destination.end.stream.destroy();
    };
    this.#restart(TUNNEL.goodbyeMs, late);
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

  /**
   * The only place that says how a tunnel ended. The first cause counts, except that a cut counts before the end of a caller that still
   * waits for the destination's.
   */
  #settle(outcome: TunnelOutcome): void {
    const before = this.#outcome;
    if (before === undefined) this.#outcome = outcome;
    else if (before.how !== 'closed' || outcome.how === 'closed') return;
    else if (outcome.how === 'cut' && before.by === 'caller' && !this.#destination.ended) this.#outcome = outcome;
    else this.#outcome = { how: 'failed', by: before.by, error: outcome.error };
  }

  #copy(from: WatchedEnd, to: WatchedEnd, written?: (ms: number) => void, gate?: FlowGate): void {
    const source = from.end.stream;
    const sink = to.end.stream;
    const write = writerOf(sink);
    let waitingSince: number | undefined;
    const copy = (chunk: Uint8Array) => {
      from.bytes += chunk.length;
      from.readAt = performance.now();
      memory.read(chunk.length);
      if (this.#endsIdle && from === this.#caller)
        return this.abort(new PlaneEnded('a request came as the idle tunnel ended', { by: this.#endsIdle }));
      if (this.#restarts) this.#timer?.refresh();
      const room = write(chunk);
      gate?.afterRead(chunk.length, room);
      if (room) return written?.(0);
      waitingSince ??= performance.now();
      source.pause();
    };
    const goOn = () => {
      to.tookAt = performance.now();
      if (waitingSince !== undefined) written?.(to.tookAt - waitingSince);
      waitingSince = undefined;
      if (gate?.drained() !== false) source.resume();
    };
    source.on('data', this.guarded(copy));
    sink.on('drain', this.guarded(goOn));
  }

  #watch(watched: WatchedEnd, other: WatchedEnd): void {
    const { side, end } = watched;
    const { stream, halfOpen } = end;
    let failure: Error | undefined;
    const fail = (error: Error) => {
      failure ??= end.explain?.(error) ?? error;
    };
    const finish = () => {
      // An earlier listener has found that this end is a reset: see `socketEnd`.
      if (stream.errored) return;
      watched.ended = true;
      this.#settle({ how: 'closed', by: side });
      if (other.ended) endAfterPeer(other.end.stream);
      else other.end.stream.end();
      if (halfOpen) this.#arm(this.#halfClosedMs);
      else this.#awaitClose(other.end.stream);
    };
    stream.on('error', this.guarded(fail));
    stream.on('end', this.guarded(finish));
    const closed = this.guarded(() => this.#closed(watched, other, failure));
    if (stream.destroyed) queueMicrotask(closed);
    else stream.on('close', closed);
  }

  /** Called when a side has closed. After a clean close, the other side still gets what was written to it; otherwise it is aborted. */
  #closed(gone: WatchedEnd, other: WatchedEnd, failure: Error | undefined): void {
    if (!gone.open) return;
    gone.open = false;
    const { side } = gone;
    // Nothing is lost if a side goes away that had sent everything: its end is no cut then.
    const orderly = gone.ended && !(failure instanceof PlaneEnded);
    // A side may close while it is cut, before the other one is.
    if (!orderly && !this.#cut) this.#fail(gone, other, failure ?? new Error(`${side} went away`));
    if (other.open) {
      if (orderly && !this.#cut) this.#awaitClose(other.end.stream);
      return;
    }
    clearTimeout(this.#timer);
    this.#done.resolve(this.#outcome ?? { how: 'closed', by: side });
  }

  /** A side failed, or was cut by the plane behind it. */
  #fail({ side, readAt }: WatchedEnd, other: WatchedEnd, error: Error): void {
    if (error instanceof PlaneEnded) {
      this.abort(error);
      return;
    }
    this.#settle({ how: 'failed', by: side, error });
    if (!other.open) return;
    const { end } = other;
    const { stream } = end;
    // Nobody wants what the other side still sends. What was read before is delivered first.
    stream.pause();
    this.#arm(TUNNEL.halfClosedMs);
    const written = (silentMs: number) => {
      if (end.delivered) end.delivered(cut, silentMs);
      else cut();
    };
    const cut = this.guarded(() => end.abort(error));
    // What a slow reader has only now made room for is still on its way, however long ago it was read.
    const late = this.guarded(() => written(0));
    if (stream.writableLength > 0 && !stream.destroyed) stream.write(NOTHING, late);
    else written(performance.now() - Math.max(readAt, other.tookAt));
  }

  /** Closes what is left after a clean end. Everything was written to it, and nobody needs what it still sends. */
  #closeOpen(): void {
    for (const watched of [this.#caller, this.#destination]) {
      watched.ended = true;
      watched.end.stream.destroy();
    }
  }

  /** Waits for a side to close, once the other is done for good. A slow reader gets everything written to it before `TUNNEL.lingerMs` starts. */
  #awaitClose(stream: Duplex): void {
    if (stream.writableFinished) this.#linger();
    else {
      this.#arm(TUNNEL.halfClosedMs);
      stream.once('finish', () => this.#linger());
    }
  }

  #progress(): number {
    return (this.#caller.end.half?.progress ?? 0) + (this.#destination.end.half?.progress ?? 0);
  }

  #linger(): void {
    this.#restart(TUNNEL.lingerMs, () => this.#closeOpen());
    this.#restarts = false;
  }

  /** Cuts the tunnel if it is silent for so long. */
  #arm(ms: number): void {
    const before = this.#progress();
    this.#restart(ms, () => {
      // What was copied long ago still arrives there.
      if (this.#progress() !== before) this.#arm(ms);
      else this.abort(new PlaneEnded(`half-closed and silent for ${ms / 1000} s`, { by: 'limit' }));
    });
    this.#restarts = true;
  }

  /** Restarts the tunnel's only timer, which does not run before a side has ended. */
  #restart(ms: number, late: () => void): void {
    clearTimeout(this.#timer);
    if (this.#caller.open || this.#destination.open) this.#timer = setTimeout(this.guarded(late), ms).unref();
  }
}

/** Whether it is a half without a carrier. */
function isDetached({ half }: TunnelEnd): boolean {
  return half?.attached === false;
}
