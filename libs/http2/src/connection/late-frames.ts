import type { Guarded } from '@isthmus/runtime';

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
