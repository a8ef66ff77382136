import { type Guarded, LONGEST_TIMER } from '@isthmus/runtime';
import { type Config, WIRE } from '../defaults.ts';

interface Ping {
  readonly since: number;
  readonly done: (() => void) | undefined;
  readonly isCheckpoint: boolean;
  /** Whether the other side had read nearly all that was sent before. */
  readonly isQuiet: boolean;
  /** What had been received before, in bytes. */
  readonly received: number;
}

/** What a connection has under way, in bytes. */
interface Traffic {
  /** Sent, and perhaps not read by the other side. */
  readonly unread: () => number;
  /** Received since the connection began. */
  readonly received: () => number;
}

/**
 * The PINGs of a connection, answered in order, and the round-trip time that they measure. It follows the recent minimum, because the time
 * that a PING waits behind data is not round-trip time. If two in a row had to wait for nothing, the path has become as long as they say.
 */
export class Pings {
  readonly #traffic: Traffic;
  readonly #config: Config;
  readonly #sent: Ping[] = [];
  /** Those of them that `begin` sent. */
  #counted = 0;
  /** How long the last PING took, if it had to wait for nothing. */
  #lastQuiet = 0;
  /** In milliseconds; 0 until it is known. */
  rtt = 0;

  constructor(traffic: Traffic, config: Config = WIRE) {
    this.#traffic = traffic;
    this.#config = config;
  }

  /** @returns whether a PING may be sent; false if too many wait already */
  begin(done?: () => void): boolean {
    if (this.#counted >= this.#config.pings) return false;
    this.#counted++;
    this.#push(done, false);
    return true;
  }

  /** A PING is sent whose answer says that the DATA before it was read. The caller bounds how many. */
  checkpoint(done: () => void): void {
    this.#push(done, true);
  }

  answered(): void {
    const ping = this.#sent.shift();
    if (!ping) return;
    const took = performance.now() - ping.since;
    if (!ping.isCheckpoint) this.#counted--;
    const quiet = ping.isQuiet && this.#traffic.received() - ping.received <= this.#config.quietBytes ? took : 0;
    const slower = ping.isCheckpoint ? this.rtt : this.rtt * 1.25;
    const longest = Math.max(slower, Math.min(quiet, this.#lastQuiet));
    this.#lastQuiet = quiet;
    this.rtt = this.rtt === 0 ? took : Math.min(took, longest);
    ping.done?.();
  }

  #push(done: Ping['done'], isCheckpoint: boolean): void {
    const isQuiet = this.#traffic.unread() <= this.#config.quietBytes;
    this.#sent.push({ since: performance.now(), done, isCheckpoint, isQuiet, received: this.#traffic.received() });
  }
}

/**
 * Bounds the bytes that a link has sent and the other process has not read. The kernel keeps up to 32 MB for the reader, and what waits there
 * delays the next byte of all streams, and PINGs. A checkpoint is a PING between DATA frames: its answer says that the other process has read
 * all DATA before it. `UnsentBound` bounds what waits with the sender, and TCP what is on the path.
 */
export class InFlight {
  readonly #pings: Pick<Pings, 'rtt'>;
  readonly #config: Config;
  #shared = false;
  /** Bytes that were sent, and that the other side has not read as far as is known. Its own methods alone change it. */
  unread = 0;
  /** Bytes that were sent since the beginning, now and at the latest checkpoint. */
  #sent = 0;
  #checkpointAt = 0;

  constructor(pings: Pick<Pings, 'rtt'>, config: Config) {
    this.#pings = pings;
    this.#config = config;
  }

  /** Several groups use the link from now on. */
  share(): void {
    this.#shared = true;
  }

  /** How many bytes may leave now. There is always room unless a checkpoint is under way, whose answer ends the wait. */
  get room(): number {
    const { inFlightSharedBytes, inFlightAloneBytes, pathBytesPerMs } = this.#config;
    const alike = this.#shared ? inFlightSharedBytes : inFlightAloneBytes;
    return Math.max(0, alike + Math.round(this.#pings.rtt * pathBytesPerMs) - this.unread);
  }

  /** Counts bytes of DATA. @returns whether a checkpoint should follow them */
  send(bytes: number): boolean {
    const { inFlightSharedBytes, sharedCheckpoints, aloneCheckpoints } = this.#config;
    this.#sent += bytes;
    this.unread += bytes;
    return (
      this.#sent - this.#checkpointAt >= inFlightSharedBytes / (this.#shared ? sharedCheckpoints : aloneCheckpoints)
    );
  }

  /** A checkpoint leaves now. @returns what to call when it is answered */
  checkpoint(): () => void {
    const at = this.#sent;
    this.#checkpointAt = at;
    return () => {
      this.unread = this.#sent - at;
    };
  }
}

interface KeepaliveOptions {
  /** How long a peer may be silent before it is pinged, in milliseconds. The check may notice the silence only after twice that time. */
  readonly keepaliveMs: number;
  readonly ping: () => void;
  readonly dead: (error: Error) => void;
  readonly guarded: Guarded;
  readonly config: Config;
}

/** Ends a connection whose peer has vanished without a word. Bytes that arrive only set a flag, which one timer checks. */
export class Keepalive {
  readonly #options: KeepaliveOptions;
  #timer: NodeJS.Timeout | undefined;
  /** Set when bytes come. */
  heard = true;

  constructor(options: KeepaliveOptions) {
    this.#options = options;
  }

  /** The peer's SETTINGS did not come with its first bytes. */
  awaitGreeting(): void {
    this.#after(this.#options.config.greetingMs, () =>
      this.#options.dead(new Error(`no SETTINGS within ${this.#options.config.greetingMs / 1000} s`)),
    );
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /** Call once the peer has sent its SETTINGS. */
  watch(): void {
    const { keepaliveMs, ping } = this.#options;
    this.#after(Math.min(keepaliveMs, LONGEST_TIMER), () => {
      if (this.heard) {
        this.heard = false;
        this.watch();
      } else {
        ping();
        this.#after(this.#options.config.pingAnswerMs, () => this.#checkAnswer());
      }
    });
  }

  #checkAnswer(): void {
    if (this.heard) this.watch();
    else this.#options.dead(new Error(`silent for ${this.#options.config.pingAnswerMs / 1000} s, even after a PING`));
  }

  #after(ms: number, act: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#options.guarded(act), ms).unref();
  }
}

/** What late frames wait for. */
export interface Patience {
  /** They leave after this time at the latest, in milliseconds. */
  readonly ms: number;
  /** They leave with a write of at least this many bytes. */
  readonly leastBytes: number;
  /** They leave at once when they are together more than this, in bytes. */
  readonly mostBytes: number;
}

/**
 * What answers to PINGs of gRPC clients wait for. After each answer, a Go client sends the next PING when it receives a packet, and learns
 * from the answers how large its window must be. That matters during bulk transfer, and then the answer leaves at once with other bytes.
 */
export function behindBulk({ pongMs: ms, pongBytes: leastBytes, lateBytes: mostBytes }: Config): Patience {
  return { ms, leastBytes, mostBytes };
}

/** What the ends of streams wait for, for which nobody waits. On a busy link, they soon leave with other frames. */
export function behindAny({ lateMs: ms, lateBytes: mostBytes }: Config): Patience {
  return { ms, leastBytes: 1, mostBytes };
}
