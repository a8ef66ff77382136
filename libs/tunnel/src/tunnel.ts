import { guarding, memory, RandomSet } from '@isthmus/runtime';
import { type Deadlines, type Due, deadlines } from './deadlines.ts';
import { TUNNEL } from './defaults.ts';
import type { DialRequest, Established, ResumableTunnel, TunnelOutcome, TunnelSide } from './dial.ts';
import type { EndUser, TunnelEnd } from './end.ts';
import { type CutBy, PlaneEnded, planeEnded, type ReaderStalled, SessionLost } from './errors.ts';
import type { PlaneEvents, TunnelInfo, TunnelRole } from './events.ts';
import { type ByteMeter, FlowGate, type MeteredFlow } from './limits/byte-meter.ts';

/** What a tunnel needs of the answer to its dial or attach. */
export type Carried = Pick<Established, 'end' | 'agentId' | 'sessionId' | 'hubId' | 'meter' | 'resumable'>;

/**
 * What a tunnel does next if nothing happens until it is due. `cut`: a side has ended, or is to take what is left for it. `close`: a side has closed,
 * and the other has everything. `end`: the destination of an idle tunnel is to end.
 */
type Late = 'cut' | 'close' | 'end';

/**
 * Copies bytes between a caller's end and a destination's end until both are closed.
 *
 * A side's EOF half-closes the other. A side that fails or vanishes before its EOF aborts the other, which first gets what was read. A cut by
 * the plane aborts both at once. If a side without half-close (`halfOpen` false) ends, or one that has ended goes away, the other gets what
 * is queued and is then closed. Nothing is buffered here: a full writer pauses its reader. An exception in our own code ends the tunnel, as
 * closed by the plane.
 */
export class Tunnel implements TunnelInfo, Due {
  readonly role: TunnelRole;
  readonly dial: DialRequest;
  readonly agentId: string;
  readonly resumable: ResumableTunnel | undefined;
  readonly since = Date.now();
  /** Whether both halves of the tunnel are elsewhere. They may go on without this carrier, and the caller's half says what becomes of it. */
  readonly passesOn: boolean;
  /** Where it began. */
  readonly #sessionId: string;
  readonly #hubId: string;
  readonly #events: PlaneEvents;
  readonly #halfClosedMs: number;
  readonly #deadlines: Deadlines;
  readonly #start = performance.now();
  /** When a half last had no carrier, as far as anybody has asked. */
  #awayAt = 0;
  readonly #caller: Side;
  readonly #destination: Side;
  #outcome: TunnelOutcome | undefined;
  #isOver = false;
  /** Made when somebody waits for its end. */
  #done: PromiseWithResolvers<TunnelOutcome> | undefined;
  #cut = false;
  /** Whether the caller has got a byte. */
  #answered = false;
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

  /**
   * @param dial the dial or attach that was answered
   * @param halfClosedMs how long it may be silent once a side has half-closed, in milliseconds
   */
  constructor(
    role: TunnelRole,
    dial: DialRequest,
    caller: TunnelEnd,
    { end, agentId, sessionId, hubId, meter, resumable }: Carried,
    events: PlaneEvents,
    halfClosedMs: number = TUNNEL.halfClosedMs,
    sweep: Deadlines = deadlines,
  ) {
    this.role = role;
    this.dial = dial;
    this.agentId = agentId;
    this.#sessionId = sessionId;
    this.#hubId = hubId;
    this.resumable = resumable;
    this.#events = events;
    this.#halfClosedMs = halfClosedMs;
    this.#deadlines = sweep;
    this.passesOn = caller.passOn?.(end) ?? false;
    this.#caller = new Side('caller', caller, this, meter);
    this.#destination = new Side('destination', end, this, meter);
    this.#caller.other = this.#destination;
    this.#destination.other = this.#caller;
    this.#caller.end.use(this.#caller, dial.tenant);
    this.#destination.end.use(this.#destination, dial.tenant);
    events.emit('tunnel:open', this);
  }

  /** Resolves when it has ended. */
  get done(): Promise<TunnelOutcome> {
    if (this.#isOver) return Promise.resolve(this.#outcome as TunnelOutcome);
    this.#done ??= Promise.withResolvers();
    return this.#done.promise;
  }

  get sessionId(): string {
    return this.resumable?.sessionId ?? this.#sessionId;
  }

  get hubId(): string {
    return this.resumable?.hubId ?? this.#hubId;
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
    return this.#caller.end.writableLength + this.#destination.end.writableLength;
  }

  /**
   * For how long it has been idle, in milliseconds: open in both directions, with nothing under way, and silent since it opened or since its
   * destination's last answer. So are connections that a caller keeps for its next request. A request without an answer is under way. A half
   * without a carrier hears nothing: the time begins anew once it has one.
   */
  get idleMs(): number {
    const [caller, destination] = [this.#caller, this.#destination];
    if (caller.end.detached || destination.end.detached) this.#awayAt = performance.now();
    if (this.#endsIdle || this.#cut || this.queued > 0 || caller.gate?.paused || destination.gate?.paused) return 0;
    if (caller.ended || destination.ended || caller.readAt > destination.readAt) return 0;
    if (destination.readAt - Math.max(caller.readAt, this.#start) > TUNNEL.answerMs) return 0;
    return performance.now() - Math.max(caller.readAt, destination.readAt, this.#start, this.#awayAt);
  }

  /**
   * Ends an idle tunnel in order: the destination hears that nothing more comes, and once it has ended too, the caller. A request that comes
   * meanwhile cannot reach the destination any more, so it cuts the tunnel.
   */
  endIdle(): void {
    this.#endsIdle = this.role === 'gateway' || this.role === 'agent' ? this.role : 'path';
    this.#saidBefore = this.#destination.bytes;
    this.#destination.end.finish(false);
    this.#wait(TUNNEL.goodbyeMs, 'end');
  }

  /** The destination of an idle tunnel did not end. If it spoke instead, or may have, nobody knows whether that was all. */
  #endForCaller(by: CutBy): void {
    const destination = this.#destination;
    if (destination.ended || !destination.open) return;
    if (destination.bytes > this.#saidBefore || destination.end.detached) {
      this.abort(new PlaneEnded('the destination spoke as the idle tunnel ended, and did not end it', { by }));
      return;
    }
    destination.ended = true;
    this.#settle({ how: 'closed', by: 'destination' });
    this.#caller.end.finish(false);
    destination.end.close();
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
   * Notes how it ends: the first cause counts, except that a cut counts before the end of a caller that still waits for the destination's. What fails
   * after another end in order is a failure by the side that had ended.
   */
  #settle(outcome: TunnelOutcome): void {
    const before = this.#outcome;
    if (!before) this.#outcome = outcome;
    if (before?.how !== 'closed' || outcome.how === 'closed') return;
    const stillWaits = before.by === 'caller' && !this.#destination.ended;
    if (outcome.how === 'cut' && stillWaits) this.#outcome = outcome;
    else this.#outcome = { how: 'failed', by: before.by, error: outcome.error };
  }

  // What its sides say.

  /** Our own code threw. */
  failed(error: Error): void {
    this.abort(error);
    this.#events.emit('fault', `${this.role} tunnel`, this.dial.caller?.remote ?? '', error);
  }

  /** Its reader held up others. */
  stalled(reason: ReaderStalled): void {
    if (!this.#cut) this.#events.emit('tunnel:stalled', this.role === 'api-server' ? 'hub' : this.role);
    this.abort(reason);
  }

  /** The caller has accepted a write. @param ms how long it waited; if it did not wait: 0, and the clock is not read */
  written(ms: number): void {
    if (this.role !== 'gateway') return;
    this.#events.emit('caller:write', ms);
    if (this.#answered) return;
    this.#answered = true;
    this.#events.emit('tunnel:first-byte', this, performance.now() - this.#start);
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
    if (end.halfOpen) this.#wait(this.#halfClosedMs, 'cut');
    other.end.finish(other.ended);
    if (!end.halfOpen && other.open) this.#awaitClose(other.end);
  }

  /** A side has closed. After a clean close, the other side still gets what was written to it; otherwise it is aborted. */
  closed(gone: Side, failure: Error | undefined): void {
    const { side, other } = gone;
    // A side that had sent everything takes nothing from the other, unless the plane cuts it. The loss of the way to a destination is no such cut, but
    // where a carrier is only passed on, the halves say what its loss means.
    const losesWay = failure instanceof SessionLost && side === 'destination' && !this.passesOn;
    const orderly = gone.ended && (losesWay || !(failure instanceof PlaneEnded));
    // A side may close while it is cut, before the other one is.
    if (!orderly && !this.#cut) this.#fail(gone, failure ?? new Error(`${side} went away`));
    if (other.open) {
      if (orderly && !this.#cut) this.#awaitClose(other.end);
      return;
    }
    // Both have closed, the other one perhaps within the abort above.
    if (this.#isOver) return;
    this.#isOver = true;
    this.#deadlines.leave(this);
    for (const { gate } of [gone, other]) gate?.close();
    this.#outcome ??= { how: 'closed', by: side };
    const said = this.#outcome;
    this.#events.emit('tunnel:close', this, said, performance.now() - this.#start);
    this.#done?.resolve(said);
  }

  /** A side failed, or was cut by the plane behind it. */
  #fail({ side, readAt, other }: Side, error: Error): void {
    if (error instanceof PlaneEnded) {
      this.abort(error);
      return;
    }
    this.#settle({ how: 'failed', by: side, error });
    if (!other.open) return;
    const { end, tookAt } = other;
    // Nobody wants what the other side still sends. What was read before is delivered first.
    end.pause();
    this.#wait(TUNNEL.halfClosedMs, 'cut');
    const cut = guarding((thrown) => this.failed(thrown))(() => end.abort(error));
    end.whenDelivered(cut, performance.now() - Math.max(readAt, tookAt));
  }

  /** Waits for a side to close, once the other is done for good. A slow reader gets everything written to it before `TUNNEL.lingerMs` starts. */
  #awaitClose(end: TunnelEnd): void {
    let isFinished = false;
    end.whenFinished(() => {
      isFinished = true;
      this.#wait(TUNNEL.lingerMs, 'close');
    });
    if (!isFinished) this.#wait(TUNNEL.halfClosedMs, 'cut');
  }

  /** Changes with each byte that a socket takes, here or beyond a half. */
  get #taken(): number {
    const [caller, destination] = [this.#caller.end, this.#destination.end];
    return (caller.progress ?? -caller.writableLength) + (destination.progress ?? -destination.writableLength);
  }

  /** Waits for what is due next, and for nothing else. */
  #wait(ms: number, late: Late): void {
    if (!this.#caller.open && !this.#destination.open) return;
    const now = performance.now();
    const { before, due } = this;
    this.#late = late;
    this.#patienceMs = ms;
    if (late === 'cut') this.#takenThen = this.#taken;
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
      side.end.close();
    }
  }
}

/** One side of a tunnel, as its end calls it. */
class Side implements EndUser, MeteredFlow {
  readonly side: TunnelSide;
  readonly end: TunnelEnd;
  readonly #tunnel: Tunnel;
  /** Set before its end is used. */
  other!: Side;
  /** Decides when it is read on. */
  readonly gate: FlowGate | undefined;
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

  constructor(side: TunnelSide, end: TunnelEnd, tunnel: Tunnel, meter: ByteMeter | undefined) {
    this.side = side;
    this.end = end;
    this.#tunnel = tunnel;
    this.gate = meter && new FlowGate(meter, this);
  }

  get sink(): TunnelEnd {
    return this.other.end;
  }

  stalled(reason: ReaderStalled): void {
    this.#guarded(() => this.#tunnel.stalled(reason));
  }

  readOn(): void {
    this.#guarded(() => this.end.resume());
  }

  #guarded(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.#tunnel.failed(error as Error);
    }
  }

  onData(chunk: Uint8Array): void {
    try {
      this.bytes += chunk.length;
      this.readAt = performance.now();
      memory.filled(chunk.length);
      if (!this.#tunnel.mayPass(this)) return;
      const room = this.other.end.write(chunk);
      this.gate?.afterRead(chunk.length, room);
      if (!room) {
        this.#waitsSince ??= performance.now();
        this.end.pause();
      } else if (this.side === 'destination') this.#tunnel.written(0);
    } catch (error) {
      this.#tunnel.failed(error as Error);
    }
  }

  onDrain(): void {
    this.#guarded(() => {
      const { other } = this;
      this.tookAt = performance.now();
      if (this.side === 'caller' && other.#waitsSince !== undefined)
        this.#tunnel.written(this.tookAt - other.#waitsSince);
      other.#waitsSince = undefined;
      if (other.gate?.drained() !== false) other.end.resume();
    });
  }

  onEnd(): void {
    try {
      this.ended = true;
      this.#tunnel.ended(this);
    } catch (error) {
      this.#tunnel.failed(error as Error);
    }
  }

  onClose(failure?: Error): void {
    if (!this.open) return;
    this.open = false;
    try {
      this.#tunnel.closed(this, failure);
    } catch (error) {
      this.#tunnel.failed(error as Error);
    }
  }
}

/** The tunnels that run in this process, tracked through its events. */
export class TunnelTable {
  readonly #events: PlaneEvents;
  readonly #tunnels = new RandomSet<TunnelInfo>();
  readonly #idle: (() => void)[] = [];

  constructor(events: PlaneEvents) {
    this.#events = events;
    events.on('tunnel:open', (tunnel) => this.#tunnels.add(tunnel));
    events.on('tunnel:close', (tunnel) => {
      this.#tunnels.delete(tunnel);
      if (this.#tunnels.size === 0) for (const resolve of this.#idle.splice(0)) resolve();
    });
  }

  get size(): number {
    return this.#tunnels.size;
  }

  [Symbol.iterator](): Iterator<TunnelInfo> {
    return this.#tunnels[Symbol.iterator]();
  }

  /** Aborts the tunnel that a dial opened, in each role that this process has. @returns how many were found */
  abort(dialId: string, reason: Error): number {
    const tunnels = [...this.#tunnels].filter((tunnel) => tunnel.dial.id === dialId);
    for (const tunnel of tunnels) if (tunnel instanceof Tunnel) tunnel.abort(reason);
    return tunnels.length;
  }

  /** Ends the tunnels that `which` selects, also those that could go on through another session. */
  abortEach(which: (tunnel: TunnelInfo) => boolean, reason: Error): void {
    for (const tunnel of [...this.#tunnels]) if (tunnel instanceof Tunnel && which(tunnel)) tunnel.abort(reason);
  }

  /**
   * Ends in order, until it is disposed of, each tunnel of a role that has been idle for `idleMs`. Call it when a drain begins: the
   * connections that callers keep for their next requests would otherwise hold a process that drains until its time is over.
   * @param idleMs in milliseconds. 0: no tunnel is ended
   */
  endIdle(role: TunnelRole, idleMs: number): Disposable {
    const sweep = () => {
      for (const tunnel of [...this.#tunnels]) {
        if (!(tunnel instanceof Tunnel) || tunnel.role !== role || tunnel.idleMs < idleMs) continue;
        tunnel.endIdle();
        this.#events.emit('tunnel:idle', tunnel);
      }
    };
    const timer = idleMs > 0 ? setInterval(sweep, Math.min(TUNNEL.idleCheckMs, idleMs)).unref() : undefined;
    return { [Symbol.dispose]: () => clearInterval(timer) };
  }

  /** Resolves as soon as no tunnel runs. */
  idle(): Promise<void> {
    if (this.#tunnels.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }
}
