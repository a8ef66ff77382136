import type { Guarded } from '@isthmus/runtime';

/** What late frames wait for. */
export interface Patience {
  /** How long at most, in milliseconds. */
  readonly ms: number;
  /** How many bytes leave that they leave with. */
  readonly least: number;
}

/**
 * For answers to PINGs. Go's clients measure the path with the first packet that they receive after each answer, to find how large their
 * window must be. That matters behind bulk, where the answer leaves at once. Short packets would each bring a PING and a WINDOW_UPDATE,
 * and all but the first of a dial's achieve nothing.
 */
export const BEHIND_BULK: Patience = { ms: 100, least: 1_024 };

/** For the ends of streams, for which nobody waits. A busy link always has something to leave with. */
export const BEHIND_ANY: Patience = { ms: 10, least: 1 };

/** So many bytes of them do not wait. */
const MOST = 1_024;

/** Frames that wait for others to leave with, which saves the peer from being woken for each. */
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
    if (this.#frames.length >= MOST) this.flush();
    // A frame that comes while the timer runs waits no longer than the first one.
    else this.#timer ??= setTimeout(this.#timeIsUp, this.#patience.ms);
  }

  /** @returns the frames that leave with so many other bytes, if those are enough */
  leaveWith(bytes: number): Buffer | undefined {
    return bytes >= this.#patience.least ? this.#take() : undefined;
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
