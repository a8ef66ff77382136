import { type Guarded, LONGEST_TIMER } from '@isthmus/runtime';

/** How long a peer may take to send its first SETTINGS, in milliseconds. */
const GREETING_MS = 10_000;

/** A PING without an answer for this long ends the connection, in milliseconds: Go's default. */
const ANSWER_MS = 20_000;

export interface KeepaliveOptions {
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
