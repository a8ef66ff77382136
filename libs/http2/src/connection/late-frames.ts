import type { Guarded } from '@isthmus/runtime';

/**
 * How long the answer to a PING may wait for bulk to leave with, in milliseconds. Go's clients measure the path with the first packet
 * that they receive after each answer, to find how large their window must be. That matters behind bulk, where the answer leaves at once.
 * Short packets would each bring a PING and a WINDOW_UPDATE, and all but the first of a dial's achieve nothing.
 */
const PATIENCE_MS = 100;

/** From so many bytes on, what leaves is bulk, and nothing waits. */
const BULK = 1_024;

/** Frames that wait for others to leave with, which saves the peer from being woken for each. */
export class LateFrames {
  readonly #send: (frames: Buffer) => void;
  readonly #timeIsUp: () => void;
  #frames: Buffer | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(send: (frames: Buffer) => void, guarded: Guarded) {
    this.#send = send;
    this.#timeIsUp = guarded(() => {
      this.#timer = undefined;
      this.flush();
    });
  }

  add(frame: Buffer): void {
    this.#frames = this.#frames ? Buffer.concat([this.#frames, frame]) : frame;
    if (this.#frames.length >= BULK) this.flush();
    // A frame that comes while the timer runs waits no longer than the first one.
    else this.#timer ??= setTimeout(this.#timeIsUp, PATIENCE_MS);
  }

  /** @returns the frames that leave with so many other bytes, if those are bulk */
  leaveWith(bytes: number): Buffer | undefined {
    return bytes >= BULK ? this.#take() : undefined;
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
