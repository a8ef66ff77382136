import { systemClock } from '@isthmus/runtime';
import { TUNNEL } from '../defaults.ts';
import { ReaderStalled } from '../errors.ts';
import { PerSecond, TokenBucket, type TokenRate } from './limits.ts';
import type { DialLimits } from './table.ts';

/** One direction of a tunnel. Its functions never throw. */
export interface MeteredFlow {
  readonly end: { pause(): void };
  /** `detached`: it has lost its way to the reader, and waits for another. */
  readonly sink: { readonly writableLength: number; readonly detached: boolean };
  readOn(): void;
  /** Ends the tunnel. */
  stalled(reason: ReaderStalled): void;
}

/**
 * Meters the bytes of one tenant's tunnels in this process. Above `bytesPerSecond`, its tunnels pause and take turns. While `bytesQueued`
 * wait for slow readers, none of its tunnels is read, and a tunnel whose reader has stalled ends. So nothing is dropped, and a reader that
 * still reads loses no byte.
 */
export class ByteMeter {
  /** Bytes that wait for slow readers. */
  queued = 0;
  /** Bytes read so far. */
  bytes = 0;
  /** Counted while their rate is limited. */
  readonly perSecond = new PerSecond(systemClock.now);
  readonly #tenant: string;
  readonly #limits: () => DialLimits;
  readonly #bucket = new TokenBucket(systemClock.now);
  readonly #paused = new Set<FlowGate>();
  /** Those whose sinks hold bytes for slow readers. */
  readonly #queueing = new Set<FlowGate>();
  #resumeTimer: NodeJS.Timeout | undefined;
  #readerTimer: NodeJS.Timeout | undefined;

  constructor(tenant: string, limits: () => DialLimits) {
    this.#tenant = tenant;
    this.#limits = limits;
  }

  // For the gates.

  /** Counts bytes that were read. @returns whether more may be read now */
  spend(bytes: number): boolean {
    this.bytes += bytes;
    const { bytesPerSecond, bytesQueued } = this.#limits();
    // An unlimited rate does not cost a look at the clock.
    if (bytesPerSecond < Number.POSITIVE_INFINITY) {
      this.perSecond.add(bytes);
      if (this.#bucket.charge(bytes, rateOf(bytesPerSecond)) <= 0) return false;
    }
    return this.queued < bytesQueued;
  }

  pause(gate: FlowGate): void {
    this.#paused.add(gate);
    this.#resumeTimer ??= setInterval(() => this.#resumePaused(), TUNNEL.resumePausedMs).unref();
  }

  /** Bytes now wait in a gate's sink. */
  queue(gate: FlowGate, bytes: number): void {
    this.#queueing.add(gate);
    this.queued += bytes;
    this.#readerTimer ??= setInterval(() => this.#endStalled(), TUNNEL.readerCheckMs).unref();
  }

  /** They no longer wait. */
  dequeue(gate: FlowGate, bytes: number): void {
    this.#queueing.delete(gate);
    this.queued -= bytes;
    if (this.#queueing.size > 0) return;
    clearInterval(this.#readerTimer);
    this.#readerTimer = undefined;
  }

  unpause(gate: FlowGate): void {
    this.#paused.delete(gate);
    if (this.#paused.size > 0) return;
    clearInterval(this.#resumeTimer);
    this.#resumeTimer = undefined;
  }

  /** Resumes paused tunnels for as many bytes as may be read now, those first that have waited longest. */
  #resumePaused(): void {
    const { bytesPerSecond, bytesQueued } = this.#limits();
    if (this.queued >= bytesQueued) return;
    let left = bytesPerSecond === Number.POSITIVE_INFINITY ? bytesPerSecond : this.#bucket.left(rateOf(bytesPerSecond));
    // The room that is left in the queue counts too. Otherwise all paused tunnels would read at once.
    left = Math.min(left, bytesQueued - this.queued);
    for (const gate of [...this.#paused]) {
      if (left <= 0) return;
      left -= TUNNEL.readBytes;
      gate.resume();
    }
  }

  #endStalled(): void {
    const { bytesQueued } = this.#limits();
    const over = this.queued >= bytesQueued;
    for (const gate of [...this.#queueing]) {
      if (gate.checkReader(over) < TUNNEL.stalledChecks) continue;
      const reason =
        `the reader of this tunnel took nothing for ${(TUNNEL.stalledChecks * TUNNEL.readerCheckMs) / 1000} s while tenant ${this.#tenant} ` +
        `had its limit bytesQueued of ${bytesQueued} waiting: find out why it stopped reading`;
      gate.flow.stalled(new ReaderStalled(reason));
    }
  }
}

/** Decides when a direction of a tunnel reads on. */
export class FlowGate {
  readonly #meter: ByteMeter;
  readonly flow: MeteredFlow;
  /** Bytes in the sink that the meter counts as queued. */
  #queued = 0;
  #paused = false;
  /** The length of the sink's queue at the last check, and at how many checks in a row it was the same. */
  #lastLength = 0;
  #stalledChecks = 0;

  constructor(meter: ByteMeter, flow: MeteredFlow) {
    this.#meter = meter;
    this.flow = flow;
  }

  /** Call when bytes of the source were written to the sink. Pauses the source if necessary. @param room whether the sink takes more at once */
  afterRead(bytes: number, room: boolean): void {
    const { end: source, sink } = this.flow;
    // A sink that was destroyed a moment ago has no room, and nothing queued.
    if (!room && this.#queued === 0 && sink.writableLength > 0) {
      this.#queued = sink.writableLength;
      this.#lastLength = this.#queued;
      this.#stalledChecks = 0;
      this.#meter.queue(this, this.#queued);
    }
    if (this.#meter.spend(bytes) || this.#paused) return;
    this.#paused = true;
    source.pause();
    this.#meter.pause(this);
  }

  /** Whether the source waits for its tenant's limits. */
  get paused(): boolean {
    return this.#paused;
  }

  /** The sink takes more. @returns whether the source may be read on now */
  drained(): boolean {
    this.#dequeue();
    return !this.#paused;
  }

  /** The tunnel is over. */
  close(): void {
    this.#dequeue();
    this.#paused = false;
    this.#meter.unpause(this);
  }

  resume(): void {
    this.#paused = false;
    this.#meter.unpause(this);
    // Otherwise `drained` resumes it.
    if (this.#queued === 0) this.flow.readOn();
  }

  /** Returns at how many checks in a row the reader had taken nothing. @param over whether the tenant's queue is full */
  checkReader(over: boolean): number {
    const { writableLength, detached } = this.flow.sink;
    const still = over && writableLength === this.#lastLength && !detached;
    this.#stalledChecks = still ? this.#stalledChecks + 1 : 0;
    this.#lastLength = writableLength;
    return this.#stalledChecks;
  }

  #dequeue(): void {
    if (this.#queued === 0) return;
    this.#meter.dequeue(this, this.#queued);
    this.#queued = 0;
  }
}

function rateOf(bytesPerSecond: number): TokenRate {
  return { perSecond: bytesPerSecond, atOnce: (bytesPerSecond * TUNNEL.burstMs) / 1000 };
}
