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
  #heard = true;

  constructor(options: KeepaliveOptions) {
    this.#options = options;
  }

  /** The peer's SETTINGS did not come with its first bytes. */
  awaitGreeting(): void {
    this.#after(this.#options.config.greetingMs, () =>
      this.#options.dead(new Error(`no SETTINGS within ${this.#options.config.greetingMs / 1000} s`)),
    );
  }

  /** The peer has sent its SETTINGS. */
  greeted(): void {
    clearTimeout(this.#timer);
    this.#arm();
  }

  /** Bytes came. */
  heard(): void {
    this.#heard = true;
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #arm(): void {
    const { keepaliveMs, ping } = this.#options;
    this.#after(Math.min(keepaliveMs, LONGEST_TIMER), () => {
      if (this.#heard) {
        this.#heard = false;
        this.#arm();
      } else {
        ping();
        this.#after(this.#options.config.pingAnswerMs, () => this.#checkAnswer());
      }
    });
  }

  #checkAnswer(): void {
    if (this.#heard) this.#arm();
    else this.#options.dead(new Error(`silent for ${this.#options.config.pingAnswerMs / 1000} s, even after a PING`));
  }

  #after(ms: number, act: () => void): void {
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

/** Frames that wait until others leave, so that the peer does not wake up for each. */
export class LateFrames {
  readonly #patience: Patience;
  readonly #send: (frames: Buffer) => void;
  readonly #timeIsUp: () => void;
  /** Whether there are any. */
  waits = false;
  #frames: Buffer | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(patience: Patience, send: (frames: Buffer) => void, guarded: Guarded) {
    this.#patience = patience;
    this.#send = send;
    this.#timeIsUp = guarded(() => {
      this.#timer = undefined;
      this.flush();
    });
  }

  add(frame: Buffer): void {
    this.#frames = this.#frames ? Buffer.concat([this.#frames, frame]) : frame;
    this.waits = true;
    if (this.#frames.length >= this.#patience.mostBytes) this.flush();
    // A frame that comes while the timer runs waits no longer than the first one.
    else this.#timer ??= setTimeout(this.#timeIsUp, this.#patience.ms);
  }

  /** @returns the waiting frames if a write of this many bytes is long enough for them */
  leaveWith(bytes: number): Buffer | undefined {
    return this.#frames && bytes >= this.#patience.leastBytes ? this.#take() : undefined;
  }

  flush(): void {
    const frames = this.#take();
    if (frames) this.#send(frames);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #take(): Buffer | undefined {
    const frames = this.#frames;
    this.#frames = undefined;
    this.waits = false;
    return frames;
  }
}
