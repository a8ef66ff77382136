/** DATA that may be on its way besides what the path itself holds, in bytes: what a busy process reads in a few turns of its event loop. */
const AHEAD = 512 * 1024;

/** Bytes that a path holds for each millisecond of its round-trip time: the 160 MB/s for which windows are made. */
const PER_MS = 160 * 1024;

/** Marks that are on their way while it is full. Fewer would let the sender pause between them. */
const MARKS = 8;

/**
 * Bounds what a connection that groups share has sent and the other process has not read. The kernel takes up to 4 MB from the sender, and
 * keeps up to 32 MB for the reader: all that one group has there goes ahead of the next byte of the others, whatever turns they take
 * here. A PING between DATA frames marks how far the other process has read, by its answer.
 */
export class InFlight {
  readonly #rtt: () => number;
  /** Bytes since the beginning: sent, sent before the latest mark, and read by the other side. */
  #sent = 0;
  #marked = 0;
  #read = 0;

  /** @param rtt the round-trip time of the path without anything that waits, in milliseconds; 0 if unknown */
  constructor(rtt: () => number) {
    this.#rtt = rtt;
  }

  get #limit(): number {
    return AHEAD + this.#rtt() * PER_MS;
  }

  /**
   * Whether more should wait until the other side has read some of it. Only while a mark is on its way, whose answer ends the wait: the
   * limit may have fallen since the latest one, with the round-trip time.
   */
  get full(): boolean {
    return this.#marked > this.#read && this.#sent - this.#read >= this.#limit;
  }

  /** Counts bytes of DATA. @returns whether a mark should follow them */
  send(bytes: number): boolean {
    this.#sent += bytes;
    return this.#sent - this.#marked >= this.#limit / MARKS;
  }

  /** A mark leaves now. @returns what to call when it was read */
  mark(): () => void {
    const at = this.#sent;
    this.#marked = at;
    return () => {
      this.#read = at;
    };
  }
}
