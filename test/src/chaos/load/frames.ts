import { createHash } from 'node:crypto';

/** Four frames a second make 20 KB/s. */
export const FRAME_EVERY = 250;
export const FRAME_BYTES = 5000;
const HEAD_BYTES = 8;
const PATTERN_BYTES = 65_536;
const GOES_ON = 0x2e;
const LAST = 0x21;

export type Direction = 'up' | 'down';

const pattern = noise(PATTERN_BYTES + FRAME_BYTES);

/** Returns bytes that look random and are the same in every process. */
function noise(length: number): Buffer {
  const blocks: Buffer[] = [];
  for (let bytes = 0; bytes < length; bytes += 64) blocks.push(createHash('sha512').update(`block ${bytes}`).digest());
  return Buffer.concat(blocks);
}

/** Returns the exact frame that must come at this place of this tunnel. It shows any lost, repeated, wrong or foreign frame. */
export function frame(tunnel: number, direction: Direction, sequence: number, last: boolean): Buffer {
  const bytes = Buffer.allocUnsafe(FRAME_BYTES);
  bytes[0] = last ? LAST : GOES_ON;
  bytes[1] = direction === 'up' ? 1 : 2;
  bytes.writeUInt16BE(tunnel, 2);
  bytes.writeUInt32BE(sequence, 4);
  const from = (sequence * 977 + tunnel * 131 + (direction === 'up' ? 0 : 17)) % PATTERN_BYTES;
  pattern.copy(bytes, HEAD_BYTES, from, from + FRAME_BYTES - HEAD_BYTES);
  return bytes;
}

/** Compares what arrives with what must arrive. */
export class FrameReader {
  /** Whether the last frame has come: an end of the tunnel now cuts nothing. */
  finished = false;
  /** Whole frames so far. */
  frames = 0;
  readonly #tunnel: number;
  readonly #direction: Direction;
  #expected: Buffer = Buffer.alloc(0);
  #at = 0;

  constructor(tunnel: number, direction: Direction) {
    this.#tunnel = tunnel;
    this.#direction = direction;
  }

  /** @returns what is wrong with the chunk, if anything */
  take(chunk: Buffer): string | undefined {
    for (let from = 0; from < chunk.length; ) {
      if (this.finished) return `${chunk.length - from} bytes behind the last frame`;
      if (this.#at === 0) {
        this.#expected = frame(this.#tunnel, this.#direction, this.frames, chunk[from] === LAST);
      }
      const size = Math.min(FRAME_BYTES - this.#at, chunk.length - from);
      if (!chunk.subarray(from, from + size).equals(this.#expected.subarray(this.#at, this.#at + size))) {
        return `tunnel ${this.#tunnel} ${this.#direction}: wrong bytes in frame ${this.frames}`;
      }
      from += size;
      this.#at = (this.#at + size) % FRAME_BYTES;
      if (this.#at === 0) {
        this.frames++;
        this.finished = this.#expected[0] === LAST;
      }
    }
    return undefined;
  }
}
