/** Prime, so that lost, doubled and swapped bytes are detected. */
const PERIOD = 65_521;

const pattern = noise();

function noise(): Buffer {
  const bytes = Buffer.alloc(2 * PERIOD);
  let x = 2_463_534_242;
  for (let at = 0; at < PERIOD; at++) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    bytes[at] = x & 0xff;
    bytes[at + PERIOD] = x & 0xff;
  }
  return bytes;
}

/** A place in the endless pattern that bulk tunnels carry. */
export class Position {
  #at: number;

  /** @param from where it begins */
  constructor(from = 0) {
    this.#at = from % PERIOD;
  }

  /** Returns the next bytes, at most one period of them. */
  next(length: number): Buffer {
    const from = this.#at;
    this.#at = (from + length) % PERIOD;
    return pattern.subarray(from, from + length);
  }

  /** Whether these are the next bytes. */
  matches(bytes: Buffer): boolean {
    for (let from = 0; from < bytes.length; ) {
      const length = Math.min(bytes.length - from, PERIOD);
      if (bytes.compare(this.next(length), 0, length, from, from + length) !== 0) return false;
      from += length;
    }
    return true;
  }
}
