import { CODE, ConnectionError, FLAG, type FrameHead } from './frames.ts';

/** What PRIORITY takes of a HEADERS frame, in bytes. */
const PRIORITY_LENGTH = 5;

/** What each frame counts beside its bytes, so that empty ones have an end too. */
const FRAME_COST = 32;

/** A header section as it comes: HEADERS, and CONTINUATION until END_HEADERS (RFC 9113 sections 6.2 and 6.10). */
export class HeaderBlock {
  readonly id: number;
  /** It is the last of its stream. */
  readonly ends: boolean;
  whole: boolean;
  readonly #parts: Buffer[];
  #cost = 0;

  /** @throws ConnectionError for a frame that no client may send */
  constructor({ stream, flags }: FrameHead, payload: Buffer) {
    if (stream % 2 === 0) throw new ConnectionError(CODE.PROTOCOL_ERROR, `HEADERS on stream ${stream}`);
    const padded = (flags & FLAG.PADDED) !== 0;
    const start = (padded ? 1 : 0) + (flags & FLAG.PRIORITY ? PRIORITY_LENGTH : 0);
    const end = payload.length - (padded ? (payload[0] ?? 0) : 0);
    if (start > end) throw new ConnectionError(CODE.PROTOCOL_ERROR, 'padding longer than its frame');
    this.id = stream;
    this.ends = (flags & FLAG.END_STREAM) !== 0;
    this.whole = (flags & FLAG.END_HEADERS) !== 0;
    this.#parts = [payload.subarray(start, end)];
  }

  get bytes(): Buffer {
    return this.#parts.length === 1 ? (this.#parts[0] as Buffer) : Buffer.concat(this.#parts);
  }

  /** @throws ConnectionError for another stream's, or beyond the most */
  continue({ stream, flags }: FrameHead, payload: Buffer, mostBytes: number): this {
    if (stream !== this.id) throw new ConnectionError(CODE.PROTOCOL_ERROR, `CONTINUATION on stream ${stream}`);
    this.#cost += payload.length + FRAME_COST;
    if (this.#cost > mostBytes) {
      throw new ConnectionError(CODE.ENHANCE_YOUR_CALM, `a header section of more than ${mostBytes} bytes`);
    }
    this.#parts.push(payload);
    this.whole = (flags & FLAG.END_HEADERS) !== 0;
    return this;
  }
}
