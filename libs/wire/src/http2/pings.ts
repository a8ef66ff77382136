import { type Guarded, LONGEST_TIMER } from '@isthmus/runtime';

/** Most PINGs that may wait for their answers. */
const MAX_PINGS = 16;

/** A PING behind less than this many bytes does not wait for them, in bytes. On a path of 1 Mbit/s they take 82 ms. */
const QUIET_BYTES = 10 * 1024;

interface Ping {
  readonly since: number;
  readonly done: ((took: number) => void) | undefined;
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
  readonly #sent: Ping[] = [];
  /** Those of them that `begin` sent. */
  #counted = 0;
  /** How long the last PING took, if it had to wait for nothing. */
  #lastQuiet = 0;
  /** In milliseconds; 0 until it is known. */
  rtt = 0;

  constructor(traffic: Traffic) {
    this.#traffic = traffic;
  }

  /** @returns whether a PING may be sent; false if too many wait already */
  begin(done?: () => void): boolean {
    if (this.#counted >= MAX_PINGS) return false;
    this.#counted++;
    this.#push(done, false);
    return true;
  }

  /** A PING is sent whose answer says that the DATA before it was read. The caller bounds how many. */
  checkpoint(done: (took: number) => void): void {
    this.#push(done, true);
  }

  answered(): void {
    const ping = this.#sent.shift();
    if (!ping) return;
    const took = performance.now() - ping.since;
    if (!ping.isCheckpoint) this.#counted--;
    const quiet = ping.isQuiet && this.#traffic.received() - ping.received <= QUIET_BYTES ? took : 0;
    const slower = ping.isCheckpoint ? this.rtt : this.rtt * 1.25;
    const longest = Math.max(slower, Math.min(quiet, this.#lastQuiet));
    this.#lastQuiet = quiet;
    this.rtt = this.rtt === 0 ? took : Math.min(took, longest);
    ping.done?.(took);
  }

  #push(done: Ping['done'], isCheckpoint: boolean): void {
    const isQuiet = this.#traffic.unread() <= QUIET_BYTES;
    this.#sent.push({ since: performance.now(), done, isCheckpoint, isQuiet, received: this.#traffic.received() });
  }
}

/** How long a peer may take to send its first SETTINGS, in milliseconds. */
const GREETING_MS = 10_000;

/** A PING without an answer for this long ends the connection, in milliseconds: Go's default. */
const ANSWER_MS = 20_000;

interface KeepaliveOptions {
  /** How long a peer may be silent before it is pinged, in milliseconds. The check may notice the silence only after twice that time. */
  readonly keepaliveMs: number;
  readonly ping: () => void;
  readonly dead: (error: Error) => void;
  readonly guarded: Guarded;
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
    this.#after(GREETING_MS, () => this.#options.dead(new Error(`no SETTINGS within ${GREETING_MS / 1000} s`)));
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
        this.#after(ANSWER_MS, () => this.#checkAnswer());
      }
    });
  }

  #checkAnswer(): void {
    if (this.#heard) this.#arm();
    else this.#options.dead(new Error(`silent for ${ANSWER_MS / 1000} s, even after a PING`));
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
}

/**
 * For answers to PINGs. After each answer, a Go client sends the next PING when it receives a packet, and learns from the answers how large
 * its window must be. That matters during bulk transfer, and then the answer leaves at once with other bytes. Without bulk, each short
 * packet would cause another PING and WINDOW_UPDATE, which achieve nothing.
 */
export const BEHIND_BULK: Patience = { ms: 100, leastBytes: 1_024 };

/** For the ends of streams, for which nobody waits. On a busy link, they soon leave with other frames. */
export const BEHIND_ANY: Patience = { ms: 10, leastBytes: 1 };

/** With this many bytes of late frames, they wait no longer. */
const MAX_WAITING_BYTES = 1_024;

/** Frames that wait until others leave, so that the peer does not wake up for each. */
export class LateFrames {
  readonly #patience: Patience;
  readonly #send: (frames: Buffer) => void;
  readonly #timeIsUp: () => void;
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
    if (this.#frames.length >= MAX_WAITING_BYTES) this.flush();
    // A frame that comes while the timer runs waits no longer than the first one.
    else this.#timer ??= setTimeout(this.#timeIsUp, this.#patience.ms);
  }

  /** @returns the waiting frames if a write of this many bytes is long enough for them */
  leaveWith(bytes: number): Buffer | undefined {
    return bytes >= this.#patience.leastBytes ? this.#take() : undefined;
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
    return frames;
  }
}
