const NEWLINE = 0x0a;

/** Lines that wait to be written, up to so many bytes. They are written in pieces of whole lines, or of one line that is longer. */
export class LineQueue {
  readonly #most: number;
  readonly #pieceBytes: number;
  #lines: Uint8Array[] = [];
  #lineBytes = 0;
  /** The piece that was begun, and how many of its bytes are written. */
  #piece: Uint8Array = Buffer.alloc(0);
  #written = 0;

  constructor(most: number, pieceBytes: number) {
    this.#most = most;
    this.#pieceBytes = pieceBytes;
  }

  /** Bytes that are not written. */
  get bytes(): number {
    return this.#lineBytes + this.#piece.length - this.#written;
  }

  /** @param line ends with a newline @returns false if there is no room for it */
  push(line: string): boolean {
    const bytes = Buffer.from(line);
    if (this.bytes + bytes.length > this.#most) return false;
    this.#lines.push(bytes);
    this.#lineBytes += bytes.length;
    return true;
  }

  /** Returns what to write next: the rest of the piece that was begun, or else another one. Empty: nothing waits. */
  next(): Uint8Array {
    if (this.#written === this.#piece.length) {
      let count = 0;
      let length = 0;
      for (const { length: more } of this.#lines) {
        if (count > 0 && length + more > this.#pieceBytes) break;
        count++;
        length += more;
      }
      this.#piece = Buffer.concat(this.#lines.splice(0, count), length);
      this.#written = 0;
      this.#lineBytes -= length;
    }
    return this.#piece.subarray(this.#written);
  }

  /** So many bytes of `next` are written. */
  wrote(bytes: number): void {
    this.#written += bytes;
  }

  /** A line that was written in part is to be written in full. */
  repeatLine(): void {
    if (this.#written > 0) this.#written = this.#piece.lastIndexOf(NEWLINE, this.#written - 1) + 1;
  }

  /** Forgets all that is not written. Returns how many lines that is. */
  clear(): number {
    const rest = this.#piece.subarray(this.#written);
    const lines = this.#lines.length + rest.filter((byte) => byte === NEWLINE).length;
    this.#lines = [];
    this.#lineBytes = 0;
    this.#written = this.#piece.length;
    return lines;
  }
}
