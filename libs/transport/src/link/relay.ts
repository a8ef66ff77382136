import { compact, guarding, memory } from '@isthmus/runtime';
import {
  type CutBy,
  closesInOrder,
  type Due,
  deadlines,
  FlowGate,
  firstCause,
  idleFor,
  type Joint,
  type JointOptions,
  PlaneEnded,
  planeEnded,
  type ReaderStalled,
  SessionLost,
  TUNNEL,
  type TunnelOutcome,
  type TunnelSide,
} from '@isthmus/tunnel';
import { ErrorCode, type Http2Stream, type PendingStream, type StreamHandler } from '@isthmus/wire';

/** A tunnel's end on a link, as a relay uses it. */
export interface RelayedEnd {
  readonly pending: PendingStream;
  /** Whether the tunnel's half is behind it. */
  readonly resumable: boolean;
  /** The code of the reset with which the plane cuts the tunnel here. */
  codeOf(reason: PlaneEnded): number;
  /** What it means that the stream was reset, or lost with its link. Undefined if it just went away. */
  meaningOf(code: number, lost: Error | undefined): Error | undefined;
  /** Called once no further frame arrives or leaves. */
  over(): void;
}

/**
 * Joins the streams of two links: what one has read, the other writes, and the reader's window opens as the bytes leave. So a relay keeps no more
 * than that window, and it is slow only as its reader is. Marks overtake bytes.
 *
 * A tunnel ends here as `Splice` says: an end half-closes the other side; a side that is lost before its end aborts the other, which first gets what
 * was read; a cut by the plane aborts both at once.
 */
export class Relay implements Joint, Due {
  readonly passesOn: boolean;
  readonly #caller: Side;
  readonly #destination: Side;
  readonly #options: JointOptions;
  readonly #start = performance.now();
  #outcome: TunnelOutcome | undefined;
  #cut = false;
  /** `new` until the constructor has given it what had come before. */
  #state: 'new' | 'open' | 'over' = 'new';
  /** What ends it because it was idle. */
  #endsIdle: CutBy | undefined;
  /** For how long a side may be silent, in milliseconds, and what happens then. */
  #patience = 0;
  #late: () => void = () => {};
  /** Whether what is read meanwhile counts. */
  #restarts = false;
  before: Due | undefined;
  behind: Due | undefined;
  due = 0;

  constructor(caller: RelayedEnd, destination: RelayedEnd, options: JointOptions) {
    this.#options = options;
    this.passesOn = caller.resumable && destination.resumable;
    this.#caller = new Side(this, 'caller', caller);
    this.#destination = new Side(this, 'destination', destination);
    this.#caller.other = this.#destination;
    this.#destination.other = this.#caller;
    const { meter, written } = options;
    if (meter) this.#caller.throttle = this.#throttle(this.#caller);
    if (meter || written) this.#destination.throttle = this.#throttle(this.#destination, written);
    // What came until now, which may be the end.
    caller.pending.giveTo(this.#caller);
    destination.pending.giveTo(this.#destination);
    this.#state = 'open';
    if (!this.#caller.open && !this.#destination.open) queueMicrotask(() => this.#over());
  }

  get up(): number {
    return this.#caller.bytes;
  }

  get down(): number {
    return this.#destination.bytes;
  }

  get halfClosed(): TunnelSide | undefined {
    if (this.#caller.ended === this.#destination.ended) return undefined;
    return this.#caller.ended ? 'caller' : 'destination';
  }

  get queued(): number {
    return this.#caller.queued + this.#destination.queued;
  }

  get idleMs(): number {
    return this.#endsIdle || this.#cut || this.queued > 0 ? 0 : idleFor(this.#caller, this.#destination, this.#start);
  }

  endIdle(by: CutBy): void {
    const [caller, destination] = [this.#caller, this.#destination];
    const saidBefore = destination.bytes;
    this.#endsIdle = by;
    destination.stream.end();
    this.#wait(TUNNEL.goodbyeMs, false, () => {
      if (destination.ended || !destination.open) return;
      // Nobody knows whether that was all.
      if (destination.bytes > saidBefore) {
        this.abort(new PlaneEnded('the destination spoke as the idle tunnel ended, and did not end it', { by }));
        return;
      }
      destination.ended = true;
      this.#settle({ how: 'closed', by: 'destination' });
      caller.stream.end();
      destination.stream.reset(ErrorCode.CANCEL);
    });
  }

  abort(reason: Error): void {
    const cut = planeEnded(reason);
    this.#cut = true;
    const passedOn = this.passesOn && cut instanceof SessionLost;
    this.#settle(passedOn ? { how: 'failed', by: 'caller', error: cut } : { how: 'cut', by: cut.by, error: cut });
    for (const { stream, end } of [this.#caller, this.#destination]) stream.reset(end.codeOf(cut));
  }

  #throttle(from: Side, written?: (ms: number) => void): Throttle {
    const { meter, stalled, fault } = this.#options;
    const throttle = new Throttle(from.other.stream, written);
    const end = (reason: ReaderStalled) => {
      if (!this.#cut) stalled?.();
      this.abort(reason);
    };
    const guarded = guarding((error) => {
      this.abort(error);
      fault?.(error);
    });
    if (meter)
      throttle.gate = new FlowGate(meter, {
        source: throttle,
        sink: throttle,
        detached: () => false,
        end,
        guarded,
      });
    return throttle;
  }

  // What the sides say.

  /** @returns whether what a side has read is passed on */
  passes(from: Side): boolean {
    if (!this.#endsIdle || from !== this.#caller) return true;
    this.abort(new PlaneEnded('a request came as the idle tunnel ended', { by: this.#endsIdle }));
    return false;
  }

  /** A side sends nothing more. */
  finished({ at, other }: Side): void {
    this.#settle({ how: 'closed', by: at });
    other.finish();
    this.#arm(this.#options.halfClosedMs ?? TUNNEL.halfClosedMs);
  }

  /** A side's stream is over. After a clean end, the other side still gets what was written to it; otherwise it is aborted. */
  closed(gone: Side, failure: Error | undefined): void {
    const { at, other } = gone;
    // Where a carrier is only passed on, the halves say what its loss means.
    const orderly = closesInOrder(at, gone.ended, failure) && !(this.passesOn && failure instanceof SessionLost);
    // A side may close while it is cut, before the other one is.
    if (!orderly && !this.#cut) this.#fail(gone, failure ?? new Error(`${at} went away`));
    if (!other.open) this.#over();
    else if (orderly && !this.#cut) this.#awaitClose(other);
  }

  #over(): void {
    if (this.#state !== 'open') return;
    this.#state = 'over';
    deadlines.leave(this);
    for (const { throttle } of [this.#caller, this.#destination]) throttle?.gate?.close();
    this.#options.ended?.(this.#outcome as TunnelOutcome);
  }

  #settle(outcome: TunnelOutcome): void {
    this.#outcome = this.#outcome ? firstCause(this.#outcome, outcome, this.#destination.ended) : outcome;
  }

  /** A side failed, or was cut by the plane behind it. */
  #fail({ at, other, throttle }: Side, error: Error): void {
    if (error instanceof PlaneEnded) {
      this.abort(error);
      return;
    }
    this.#settle({ how: 'failed', by: at, error });
    if (!other.open) return;
    // Nobody wants what the other side still sends. What was read before is delivered first.
    throttle?.release();
    other.unwanted = true;
    other.whenWritten(() => other.stream.reset(ErrorCode.CANCEL));
    if (other.open) this.#arm(TUNNEL.halfClosedMs);
  }

  /** Waits for a side to close, once the other is done for good. A slow reader gets everything written to it before `TUNNEL.lingerMs` starts. */
  #awaitClose(side: Side): void {
    if (!side.stream.localEnded) this.#arm(TUNNEL.halfClosedMs);
    side.whenEnded(() => this.#wait(TUNNEL.lingerMs, false, () => this.#closeOpen()));
  }

  /** Closes what is left after a clean end. Everything was written to it, and nobody needs what it still sends. */
  #closeOpen(): void {
    for (const side of [this.#caller, this.#destination]) {
      side.ended = true;
      side.stream.reset(ErrorCode.CANCEL);
    }
  }

  /** Cuts the tunnel if it is silent for so long. */
  #arm(ms: number): void {
    this.#wait(ms, true, () =>
      this.abort(new PlaneEnded(`half-closed and silent for ${ms / 1000} s`, { by: 'limit' })),
    );
  }

  #wait(ms: number, restarts: boolean, late: () => void): void {
    this.#patience = ms;
    this.#restarts = restarts;
    this.#late = late;
    const now = deadlines.now();
    this.due = now + ms;
    if (this.#caller.open || this.#destination.open) deadlines.enter(this);
  }

  remind(): void {
    const [caller, destination] = [this.#caller, this.#destination];
    const heard = this.#restarts ? Math.max(caller.readAt, destination.readAt, caller.sentAt, destination.sentAt) : 0;
    const due = heard + this.#patience;
    if (due <= this.due) this.#late();
    else {
      this.due = due;
      deadlines.enter(this);
    }
  }
}

/** One side of a relay: its stream, which writes what the other side has read. */
class Side implements StreamHandler {
  readonly at: TunnelSide;
  readonly end: RelayedEnd;
  readonly stream: Http2Stream;
  readonly #relay: Relay;
  /** Set before it hears anything. */
  other!: Side;
  /** True until its stream is over. */
  open = true;
  /** Whether it has sent everything. */
  ended = false;
  /** Whether nobody wants what it still sends. */
  unwanted = false;
  /** Bytes that were read from it. */
  bytes = 0;
  /** When something was last read from it, and left for it, in milliseconds of `performance.now()`. */
  readAt = 0;
  sentAt = 0;
  /** Of what is read from it, at a gateway. */
  throttle: Throttle | undefined;
  #written: (() => void) | undefined;

  constructor(relay: Relay, at: TunnelSide, end: RelayedEnd) {
    this.#relay = relay;
    this.at = at;
    this.end = end;
    this.stream = end.pending.stream;
  }

  /** Bytes for it, and from it, that wait here. */
  get queued(): number {
    return this.stream.pending + (this.throttle?.kept ?? 0);
  }

  /** The other side has ended. */
  finish(): void {
    const { throttle } = this.other;
    if (throttle) throttle.end();
    else this.stream.end();
  }

  /** Calls back once all that was written has left. */
  whenWritten(then: () => void): void {
    if (this.stream.pending === 0) then();
    else this.#written = then;
  }

  /** Calls back once our end has left. */
  whenEnded(then: () => void): void {
    if (this.stream.localEnded) then();
    else
      this.#written = () => {
        if (this.stream.localEnded) then();
        else this.whenEnded(then);
      };
  }

  // What the stream says.

  onHeaders(): void {}

  onData(bytes: Buffer): void {
    this.bytes += bytes.length;
    this.readAt = performance.now();
    memory.read(bytes.length);
    if (this.unwanted || !this.#relay.passes(this)) return;
    if (this.throttle) this.throttle.write(bytes);
    else this.other.stream.write(bytes);
  }

  onMark(payload: Buffer): void {
    if (this.#relay.passesOn) this.other.stream.mark(payload);
  }

  onEnd(): void {
    this.ended = true;
    this.#relay.finished(this);
  }

  onSent(bytes: number): void {
    this.other.stream.consume(bytes);
    // What a slow reader takes of what is left for it restarts the time that it has.
    if (this.ended || this.other.ended || this.unwanted || !this.other.open) this.sentAt = performance.now();
  }

  onWritable(): void {
    // Before, no time is counted.
    if (this.ended || this.other.ended) this.sentAt = performance.now();
    this.other.throttle?.drained();
    const written = this.#written;
    this.#written = undefined;
    written?.();
  }

  onClose(code: number | undefined, reason: Error | undefined): void {
    if (!this.open) return;
    this.open = false;
    this.stream.release();
    this.end.over();
    this.#relay.closed(this, code === undefined ? undefined : this.end.meaningOf(code, reason));
  }
}

/** One direction at a gateway, which meters its bytes, or counts how long they wait. What is read meanwhile waits here. */
class Throttle {
  gate: FlowGate | undefined;
  readonly #sink: Http2Stream;
  readonly #written: ((ms: number) => void) | undefined;
  #kept: Buffer[] = [];
  #paused = false;
  #ends = false;
  #waitingSince: number | undefined;

  constructor(sink: Http2Stream, written: ((ms: number) => void) | undefined) {
    this.#sink = sink;
    this.#written = written;
  }

  get writableLength(): number {
    return this.#sink.pending;
  }

  /** Bytes that wait here. */
  get kept(): number {
    return this.#kept.reduce((sum, bytes) => sum + bytes.length, 0);
  }

  write(bytes: Buffer): void {
    if (this.#paused) {
      this.#kept.push(compact(bytes) as Buffer);
      return;
    }
    this.#sink.write(bytes);
    const room = this.#sink.leavesSoon;
    this.gate?.afterRead(bytes.length, room);
    if (room) this.#written?.(0);
    else this.#waitingSince ??= performance.now();
    this.#paused ||= !room;
  }

  /** The sink takes more. */
  drained(): void {
    if (this.#waitingSince !== undefined) this.#written?.(performance.now() - this.#waitingSince);
    this.#waitingSince = undefined;
    if (this.gate?.drained() !== false) this.resume();
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    const kept = this.#kept;
    this.#kept = [];
    for (const bytes of kept) this.write(bytes);
    if (this.#ends && this.#kept.length === 0) this.#sink.end();
  }

  /** Nothing more is read. */
  end(): void {
    this.#ends = true;
    if (this.#kept.length === 0) this.#sink.end();
  }

  /** Passes on what waits, whatever the gate says. */
  release(): void {
    for (const bytes of this.#kept) this.#sink.write(bytes);
    this.#kept = [];
  }
}
