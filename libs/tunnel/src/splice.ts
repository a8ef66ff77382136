import type { Duplex } from 'node:stream';
import { endAfterPeer, type Guarded, guarding, memory, writerOf } from '@isthmus/runtime';
import { TUNNEL } from './defaults.ts';
import type { Joint, JointOptions, TunnelEnd, TunnelOutcome, TunnelSide } from './dial.ts';
import { type CutBy, PlaneEnded, planeEnded, type ReaderStalled } from './errors.ts';
import { FlowGate } from './limits/byte-meter.ts';

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

/**
 * Says how a tunnel ended, when something has ended it before: the first cause counts, except that a cut counts before the end of a caller that
 * still waits for the destination's.
 * @param answered whether the destination has ended
 */
export function firstCause(before: TunnelOutcome, outcome: TunnelOutcome, answered: boolean): TunnelOutcome {
  if (before.how !== 'closed' || outcome.how === 'closed') return before;
  if (outcome.how === 'cut' && before.by === 'caller' && !answered) return outcome;
  return { how: 'failed', by: before.by, error: outcome.error };
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
export function idleFor(caller: Flow, destination: Flow, start: number, since = start): number {
  if (caller.ended || destination.ended || caller.readAt > destination.readAt) return 0;
  if (destination.readAt - Math.max(caller.readAt, start) > TUNNEL.answerMs) return 0;
  return performance.now() - Math.max(caller.readAt, destination.readAt, since);
}

/**
 * Copies bytes between a caller's end and a destination's end until both are closed.
 *
 * A side's EOF half-closes the other. A side that fails or vanishes before its EOF aborts the other, which first gets what was read. A cut by
 * the plane aborts both at once. If a side without half-close (`halfOpen` false) ends, or one that has ended goes away, the other gets what
 * is queued and is then closed. Nothing is buffered here: a full writer pauses its reader.
 */
export class Splice implements Joint {
  readonly passesOn = false;
  /** Wraps each callback so that it never throws: an exception in our own code ends the tunnel, closed by the plane. */
  readonly guarded: Guarded;
  readonly #start = performance.now();
  /** When a half last had no carrier, as far as anybody has asked. */
  #awayAt = 0;
  readonly #caller: WatchedEnd;
  readonly #destination: WatchedEnd;
  #outcome: TunnelOutcome | undefined;
  #cut = false;
  #over = false;
  /** What ends it because it was idle. */
  #endsIdle: CutBy | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Whether the timer restarts with each chunk. */
  #restarts = false;
  readonly #halfClosedMs: number;
  readonly #ended: JointOptions['ended'];
  readonly #gates: FlowGate[] = [];

  constructor(caller: TunnelEnd, destination: TunnelEnd, options: JointOptions = {}) {
    const { written, fault, ended, halfClosedMs = TUNNEL.halfClosedMs } = options;
    this.#halfClosedMs = halfClosedMs;
    this.#ended = ended;
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
  }

  #gate(from: TunnelEnd, to: TunnelEnd, { meter, stalled }: JointOptions): FlowGate | undefined {
    if (!meter) return undefined;
    const end = (reason: ReaderStalled) => {
      if (!this.#cut) stalled?.();
      this.abort(reason);
    };
    const detached = () => isDetached(to);
    const gate = new FlowGate(meter, { source: from.stream, sink: to.stream, detached, end, guarded: this.guarded });
    this.#gates.push(gate);
    return gate;
  }

  get up(): number {
    return this.#caller.bytes;
  }

  get down(): number {
    return this.#destination.bytes;
  }

  get halfClosed(): TunnelSide | undefined {
    const [caller, destination] = [this.#caller, this.#destination];
    if (caller.ended === destination.ended) return undefined;
    return caller.ended ? 'caller' : 'destination';
  }

  get queued(): number {
    return this.#caller.end.stream.writableLength + this.#destination.end.stream.writableLength;
  }

  /** See `idleFor`. A half without a carrier hears nothing: the time begins anew once it has one. */
  get idleMs(): number {
    const [caller, destination] = [this.#caller, this.#destination];
    if (isDetached(caller.end) || isDetached(destination.end)) this.#awayAt = performance.now();
    if (this.#endsIdle || this.#cut || this.queued > 0) return 0;
    return idleFor(caller, destination, this.#start, Math.max(this.#start, this.#awayAt));
  }

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

  abort(reason: Error): void {
    const cut = planeEnded(reason);
    this.#cut = true;
    this.#settle({ how: 'cut', by: cut.by, error: cut });
    for (const { open, end } of [this.#caller, this.#destination]) if (open) end.abort(cut);
  }

  #settle(outcome: TunnelOutcome): void {
    this.#outcome = this.#outcome ? firstCause(this.#outcome, outcome, this.#destination.ended) : outcome;
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
    // Where the other side closes as soon as it is cut, it was the last one.
    if (this.#over) return;
    this.#over = true;
    clearTimeout(this.#timer);
    for (const gate of this.#gates) gate.close();
    this.#ended?.(this.#outcome ?? { how: 'closed', by: side });
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
