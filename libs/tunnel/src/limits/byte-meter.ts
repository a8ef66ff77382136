import type { Duplex } from 'node:stream';
import type { Guarded } from '@isthmus/runtime';
import { ReaderStalled } from '../dial/errors.ts';
import type { DialLimits } from './limits.ts';
import { PerSecond } from './per-second.ts';
import type { TenantBytes } from './spare-bytes.ts';
import { TokenBucket, type TokenRate } from './token-bucket.ts';

/** Tunnels that wait go on this often, in milliseconds. Shorter than a frame of a terminal, and few timers. */
const GO_ON_EVERY = 20;

/** The same while a tenant waits for time of the event loop: what it carries at once makes quiet tenants wait. */
const SOON = 2;

/** What a second's bytes may exceed their rate at once, in seconds of the rate. */
const AT_ONCE = 0.1;

/** One read of a socket, in bytes: what a tunnel that goes on reads at least. */
const ONE_READ = 64 * 1024;

/** How often the readers of a tenant whose queue is full are looked at, in milliseconds. */
const LOOK_EVERY = 1000;

/**
 * Looks at which a reader has taken nothing before its tunnel is ended, while its tenant's queue is full. As patient as with readers
 * that hold up a packet stream.
 */
const STANDING_LOOKS = 10;

/** One direction of a tunnel. */
export interface MeteredFlow {
  readonly source: Duplex;
  readonly sink: Duplex;
  /** Whether the sink has lost its way to the reader, and waits for another. */
  readonly detached?: () => boolean;
  /** Ends the tunnel, because its reader stands still. */
  readonly end: (reason: ReaderStalled) => void;
  /** Wraps what timers call. */
  readonly guarded: Guarded;
}

/** Decides when a direction of a tunnel reads on. */
export interface Gate {
  /** The source was read, and its bytes written. Pauses the source if it has to wait. @param room whether the sink takes more at once */
  read(bytes: number, room: boolean): void;
  /** The sink takes more. @returns whether the source may be read on now */
  drained(): boolean;
  /** The tunnel is over. */
  close(): void;
}

/**
 * The bytes of one tenant's tunnels in this process. Above `bytesPerSecond` its tunnels pause and take turns; nothing is dropped. While
 * `bytesQueued` wait for slow readers, no tunnel of the tenant is read, and one whose reader stands still meanwhile is ended: a moving
 * reader loses no byte.
 */
export class ByteMeter {
  /** Bytes that wait for slow readers. */
  queued = 0;
  /** Bytes read so far. */
  bytes = 0;
  /** Counted while their rate is limited. */
  readonly perSecond: PerSecond;
  readonly #tenant: string;
  readonly #limits: () => DialLimits;
  readonly #bucket: TokenBucket;
  readonly #spare: TenantBytes | undefined;
  readonly #waiting = new Set<FlowGate>();
  readonly #full = new Set<FlowGate>();
  #goOn: NodeJS.Timeout | undefined;
  #look: NodeJS.Timeout | undefined;

  /** @param spare keeps time for other tenants; unset: there is nobody else */
  constructor(tenant: string, limits: () => DialLimits, now: () => number, spare?: TenantBytes) {
    this.#tenant = tenant;
    this.#limits = limits;
    this.#spare = spare;
    this.#bucket = new TokenBucket(now);
    this.perSecond = new PerSecond(now);
  }

  /** A direction of a tunnel begins. */
  open(flow: MeteredFlow): Gate {
    this.#spare?.dial();
    return new FlowGate(this, flow);
  }

  // For the gates.

  /** Counts bytes that were read. @returns whether more may be read now */
  spend(bytes: number): boolean {
    this.bytes += bytes;
    const { bytesPerSecond, bytesQueued } = this.#limits();
    // An unlimited rate does not cost a look at the clock.
    const paced = bytesPerSecond < Number.POSITIVE_INFINITY && this.#charge(bytes, bytesPerSecond) <= 0;
    const busy = this.#spare?.spend(bytes) === false;
    return !paced && !busy && this.queued < bytesQueued;
  }

  #charge(bytes: number, bytesPerSecond: number): number {
    this.perSecond.add(bytes);
    return this.#bucket.charge(bytes, rateOf(bytesPerSecond));
  }

  wait(gate: FlowGate): void {
    this.#waiting.add(gate);
    const every = this.#spare?.perSecond === undefined ? GO_ON_EVERY : SOON;
    this.#goOn ??= setInterval(() => this.#letGoOn(), every).unref();
  }

  /** Bytes wait in a gate's sink. */
  fill(gate: FlowGate, bytes: number): void {
    this.#full.add(gate);
    this.queued += bytes;
    this.#look ??= setInterval(() => this.#endStanding(), LOOK_EVERY).unref();
  }

  /** They wait no longer. */
  empty(gate: FlowGate, bytes: number): void {
    this.#full.delete(gate);
    this.queued -= bytes;
    if (this.#full.size > 0) return;
    clearInterval(this.#look);
    this.#look = undefined;
  }

  leave(gate: FlowGate): void {
    this.#waiting.delete(gate);
    if (this.#waiting.size > 0) return;
    clearInterval(this.#goOn);
    this.#goOn = undefined;
  }

  /** Lets those who have waited longest read as much as is left, each once. */
  #letGoOn(): void {
    const { bytesPerSecond, bytesQueued } = this.#limits();
    if (this.queued >= bytesQueued) return;
    let left = bytesPerSecond === Number.POSITIVE_INFINITY ? bytesPerSecond : this.#bucket.left(rateOf(bytesPerSecond));
    // What may yet be queued counts too: else all that wait would read at once.
    left = Math.min(left, bytesQueued - this.queued, this.#spare?.left ?? Number.POSITIVE_INFINITY);
    for (const gate of [...this.#waiting]) {
      if (left <= 0) return;
      left -= ONE_READ;
      gate.goOn();
    }
  }

  #endStanding(): void {
    const { bytesQueued } = this.#limits();
    const over = this.queued >= bytesQueued;
    for (const gate of [...this.#full]) {
      if (gate.look(over) < STANDING_LOOKS) continue;
      const reason =
        `the reader of this tunnel took nothing for ${(STANDING_LOOKS * LOOK_EVERY) / 1000} s while tenant ${this.#tenant} ` +
        `had its limit bytesQueued of ${bytesQueued} waiting: find out why it stopped reading`;
      gate.end(new ReaderStalled(reason));
    }
  }
}

class FlowGate implements Gate {
  readonly #meter: ByteMeter;
  readonly #flow: MeteredFlow;
  /** What waits in the sink and is counted. */
  #queued = 0;
  #held = false;
  /** What waited at the last look, and at how many in a row it was the same. */
  #seen = 0;
  #still = 0;

  constructor(meter: ByteMeter, flow: MeteredFlow) {
    this.#meter = meter;
    this.#flow = flow;
  }

  read(bytes: number, room: boolean): void {
    const { source, sink } = this.#flow;
    if (!room && this.#queued === 0) {
      this.#queued = sink.writableLength;
      this.#seen = this.#queued;
      this.#still = 0;
      this.#meter.fill(this, this.#queued);
    }
    if (this.#meter.spend(bytes) || this.#held) return;
    this.#held = true;
    source.pause();
    this.#meter.wait(this);
  }

  drained(): boolean {
    this.#empty();
    return !this.#held;
  }

  close(): void {
    this.#empty();
    this.#held = false;
    this.#meter.leave(this);
  }

  goOn(): void {
    this.#held = false;
    this.#meter.leave(this);
    // Otherwise `drained` resumes it.
    if (this.#queued === 0) this.#flow.guarded(() => void this.#flow.source.resume())();
  }

  /** Returns at how many looks in a row the reader had taken nothing. */
  look(over: boolean): number {
    const { sink, detached } = this.#flow;
    const { writableLength } = sink;
    const still = over && writableLength === this.#seen && !detached?.();
    this.#still = still ? this.#still + 1 : 0;
    this.#seen = writableLength;
    return this.#still;
  }

  end(reason: ReaderStalled): void {
    this.#flow.guarded(() => this.#flow.end(reason))();
  }

  #empty(): void {
    if (this.#queued === 0) return;
    this.#meter.empty(this, this.#queued);
    this.#queued = 0;
  }
}

function rateOf(bytesPerSecond: number): TokenRate {
  return { perSecond: bytesPerSecond, atOnce: bytesPerSecond * AT_ONCE };
}
