/**
 * How much a connection may have under way besides what its path holds, in bytes. A busy process reads as much in a few turns of its event
 * loop.
 */
const BYTES_AHEAD = 512 * 1024;

/** What a path holds for each millisecond of its round-trip time, in bytes: the 160 MB/s that windows are made for. */
const BYTES_PER_MS = 160 * 1024;

/** Checkpoints that are under way while it is full. With fewer, the sender would pause between their answers. */
const CHECKPOINTS_UNDER_WAY = 8;

/**
 * Bounds the bytes that a connection has sent and the other process has not read, once several groups share the connection. The kernel
 * accepts up to 4 MB from the sender, and keeps up to 32 MB for the reader. Whatever one group has there arrives before the next byte of
 * the others, even if groups take turns here. A checkpoint is a PING between DATA frames: its answer says that the other process has read
 * all DATA before it.
 */
export class InFlight {
  readonly #rtt: () => number;
  /** Bytes since the beginning: sent, sent before the latest checkpoint, and read by the other side. */
  #sent = 0;
  #checkpointAt = 0;
  #read = 0;

  /** @param rtt the round-trip time of the path while nothing waits on it, in milliseconds; 0 if unknown */
  constructor(rtt: () => number) {
    this.#rtt = rtt;
  }

  get #limit(): number {
    return BYTES_AHEAD + this.#rtt() * BYTES_PER_MS;
  }

  /**
   * Whether the sender should wait until the other side has read more. True only while a checkpoint is under way, because its answer ends
   * the wait. Without one, the limit may still be exceeded: it falls with the round-trip time.
   */
  get full(): boolean {
    return this.#checkpointAt > this.#read && this.#sent - this.#read >= this.#limit;
  }

  /** Counts bytes of DATA. @returns whether a checkpoint should follow them */
  send(bytes: number): boolean {
    this.#sent += bytes;
    return this.#sent - this.#checkpointAt >= this.#limit / CHECKPOINTS_UNDER_WAY;
  }

  /** A checkpoint leaves now. @returns what to call when it is answered */
  checkpoint(): () => void {
    const at = this.#sent;
    this.#checkpointAt = at;
    return () => {
      this.#read = at;
    };
  }
}
