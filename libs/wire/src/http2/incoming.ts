import { SharedBudget } from '@isthmus/runtime';
import { type Config, WIRE } from '../defaults.ts';
import { ErrorCode, MAX_WINDOW } from './frames.ts';
import { type Field, readPseudo } from './heads.ts';

/** Bounds of the growth of windows. */
export interface WindowGrowth {
  /** For paths with a long round-trip time. */
  readonly budget: SharedBudget;
  /** For readers that are fast. */
  readonly local: SharedBudget;
  /** Largest size of a window, in bytes. */
  readonly largest: number;
  /** For what comes beyond windows. Default: the process'. */
  readonly excess?: SharedBudget;
}

/** Shared by this process. Whoever sends beyond windows before anybody knows whose it is, is a group too. */
const EXCESS = new SharedBudget(WIRE.excessBytes, true);
const STRANGERS = '';

/** Shared by this process. */
const PROCESS: WindowGrowth = {
  budget: new SharedBudget(WIRE.growthBytes),
  local: new SharedBudget(WIRE.localGrowthBytes),
  largest: WIRE.largestWindowBytes,
};

interface IncomingOptions {
  readonly config: Config;
  /** The connection's round-trip time, in milliseconds. */
  readonly rtt: () => number;
  /** Default: as far as the path can use it. */
  readonly growth?: WindowGrowth | undefined;
  /** Who uses its budget. */
  readonly group?: string | undefined;
}

/**
 * What the other side may still send on a stream: a head, as much data as the head says, trailers, an end, then nothing (RFC 9113
 * sections 5.1 and 8.1). Data also needs room in the stream's window. That starts small, so that many idle or stalled streams hold little. It
 * grows while its reader empties it faster than the connection can fill it, within the process' budget.
 *
 * What a call finds wrong, it returns as the code of a stream error.
 */
export class Incoming {
  /** `head` until a request or a final response has arrived. Nobody else changes it. */
  state: 'head' | 'body' | 'ended';
  #informational = 0;
  /** Bytes that Content-Length still expects; undefined without one. */
  #left: number | undefined;
  readonly #limits: WindowGrowth;
  readonly #config: Config;
  readonly #rtt: () => number;
  #group: string | undefined;
  #size: number;
  /** Bytes that the other side may still send. */
  #open: number;
  /** Bytes read here and not yet returned to the window. */
  #read = 0;
  #grown = 0;
  #grownLocal = 0;
  /** Bytes returned to the other side. */
  #returned = 0;
  /** Bytes beyond the window that nobody has read, and whose budget they use. */
  #exceeding = 0;
  #exceeds = STRANGERS;
  #since = performance.now();
  /** When window was returned, and how many bytes come ahead of those that use it: negative once they have come. */
  #returnedAt = 0;
  #ahead = -1;
  /** How long after it they came, in milliseconds. It follows the recent minimum. */
  #usedAfter = Number.POSITIVE_INFINITY;

  /** @param content how many bytes of data may come: see `contentOf` */
  constructor(state: 'head' | 'body', { config, rtt, growth = PROCESS, group }: IncomingOptions, content?: number) {
    this.state = state;
    this.#left = content;
    this.#config = config;
    this.#group = group;
    this.#size = config.windowBytes;
    this.#open = config.windowBytes;
    this.#rtt = rtt;
    this.#limits = growth;
  }

  /** A further section: a response head, informational or not, or trailers. @param ends whether a call of `end` follows */
  section(fields: readonly Field[], ends: boolean): number | undefined {
    if (this.state === 'ended') return ErrorCode.STREAM_CLOSED;
    const isTrailers = this.state === 'body';
    const own = readPseudo(fields, isTrailers ? 'trailers' : 'response');
    const informational = own?.[':status']?.startsWith('1') ?? false;
    if (!own || (isTrailers ? !ends : informational && ends)) return ErrorCode.PROTOCOL_ERROR;
    if (!informational) this.state = 'body';
    else if (++this.#informational > this.#config.informationalHeads) return ErrorCode.ENHANCE_YOUR_CALM;
    return undefined;
  }

  /** The stream ends, by a flag on the last frame. */
  end(): number | undefined {
    if (this.state === 'ended') return undefined;
    if (this.state === 'head') return ErrorCode.PROTOCOL_ERROR;
    this.state = 'ended';
    return this.#left ? ErrorCode.PROTOCOL_ERROR : undefined;
  }

  /** Says who uses the budget, if that is known only after the stream began. A window that has grown already stays with its first user. */
  account(group: string): void {
    if (this.#grown + this.#grownLocal === 0) this.#group = group;
  }

  /**
   * Bytes of data came.
   * @param padding bytes that need room in the window alone
   * @param excess what may come beyond the window, if there is budget for it. What was returned does not count: who uses it has read our SETTINGS
   */
  receive(length: number, padding = 0, excess = 0): number | undefined {
    if (this.state !== 'body') return this.state === 'head' ? ErrorCode.PROTOCOL_ERROR : ErrorCode.STREAM_CLOSED;
    if (this.#left !== undefined) {
      this.#left -= length;
      if (this.#left < 0) return ErrorCode.PROTOCOL_ERROR;
    }
    // A stream that was quiet, such as one whose dial took a round trip, is not a slow one.
    if (this.#open === this.#size) this.#since = performance.now();
    const bytes = length + padding;
    this.#open -= bytes;
    if (this.#ahead >= 0) this.#measure(bytes);
    if (bytes === 0 || this.#open >= 0) return undefined;
    const fits = this.#open - this.#returned + excess >= 0 && this.#exceed();
    return fits ? undefined : ErrorCode.FLOW_CONTROL_ERROR;
  }

  /** Takes budget for what is unread beyond the window, or gives back what was read of it. @returns whether there is enough */
  #exceed(unread = Math.max(0, -this.#open - this.#read)): boolean {
    const { excess = EXCESS } = this.#limits;
    const more = unread - this.#exceeding;
    if (this.#exceeding === 0) this.#exceeds = this.#group ?? STRANGERS;
    if (more > 0 && !excess.take(more, this.#exceeds)) return false;
    if (more < 0) excess.give(-more, this.#exceeds);
    this.#exceeding = unread;
    return true;
  }

  /** Whether most of the window is unread here, so that the other side has to wait. Window that we hold back does not count as unread. */
  get short(): boolean {
    return this.#open + this.#read < Math.min(this.#config.shortWindowBytes, this.#size / 2);
  }

  /**
   * Counts bytes as read.
   * @param least set while some of the window is held back. The window then does not grow, and when little is open, this many bytes are
   * returned at a time
   * @returns how many bytes to return to the other side; 0 for none yet, and once it has ended
   */
  consume(bytes: number, least?: number): number {
    this.#read += bytes;
    if (this.#exceeding > 0) this.#exceed();
    if (this.state === 'ended') return 0;
    const half = this.#size / 2;
    if (this.#read < (least === undefined ? half : Math.min(half, Math.max(least, this.#open)))) return 0;
    const credit = this.#read + (least === undefined ? this.#growth() : 0);
    if (this.#ahead < 0) {
      this.#ahead = this.#open;
      this.#returnedAt = performance.now();
    }
    this.#open += credit;
    this.#returned += credit;
    this.#read = 0;
    return credit;
  }

  /** Counts padding as read. The window does not grow for it, because nobody reads it. @returns how many bytes to return to the other side */
  skip(padding: number): number {
    return this.consume(padding, Number.POSITIVE_INFINITY);
  }

  /** Enlarges the window by this many bytes. */
  widen(bytes: number): void {
    this.#size += bytes;
    this.#open += bytes;
  }

  /** The stream is over. */
  close(): void {
    const { budget, local } = this.#limits;
    if (this.#grown > 0) budget.give(this.#grown, this.#group);
    if (this.#grownLocal > 0) local.give(this.#grownLocal, this.#group);
    if (this.#exceeding > 0) this.#exceed(0);
    this.#grown = 0;
    this.#grownLocal = 0;
    this.#size = MAX_WINDOW;
  }

  /** Bytes that use returned window come a round trip after it, or later. The PINGs of a process that was busy say that the path is longer. */
  #measure(bytes: number): void {
    this.#ahead -= bytes;
    if (this.#ahead >= 0) return;
    this.#usedAfter = Math.min(performance.now() - this.#returnedAt, this.#config.pathGrowth * this.#usedAfter);
  }

  #growth(): number {
    const now = performance.now();
    const took = now - this.#since;
    this.#since = now;
    const { budget, local, largest } = this.#limits;
    const { localWindowBytes, fastReadMs, windowRounds, farGrowth, pathBytesPerMs } = this.#config;
    const rtt = Math.min(this.#rtt(), this.#usedAfter);
    // A window larger than what the path holds lets its sender go no faster.
    const room = Math.min(largest, Math.max(localWindowBytes, pathBytesPerMs * rtt)) - this.#size;
    if (room <= 0) return 0;
    const growth = Math.min(this.#size, room);
    const far = Math.min(farGrowth * this.#size, room);
    const limits = took < windowRounds * rtt;
    if (limits && budget.take(far, this.#group)) return this.#grow(far);
    if (limits && budget.take(growth, this.#group)) return this.#grow(growth);
    const isFast = this.#size < localWindowBytes && took < fastReadMs;
    if (!isFast || !local.take(growth, this.#group)) return 0;
    this.#grownLocal += growth;
    this.#size += growth;
    return growth;
  }

  #grow(growth: number): number {
    this.#grown += growth;
    this.#size += growth;
    return growth;
  }
}
