import { ConnectionError, ErrorCode, Flag, unpadded } from '@isthmus/http2';

/** What PRIORITY takes of a HEADERS frame, in bytes. */
const PRIORITY_LENGTH = 5;

/** What each frame counts beside its bytes, so that empty ones have an end too. */
const FRAME_COST = 32;

/** A header section as it comes: HEADERS, and CONTINUATION until END_HEADERS (RFC 9113 sections 6.2 and 6.10). */
export class HeaderBlock {
  readonly stream: number;
  /** It is the last of its stream. */
  readonly ends: boolean;
  whole: boolean;
  readonly #parts: Buffer[];
  #cost = 0;

  /** @throws ConnectionError for a frame that no client may send */
  constructor(stream: number, flags: number, payload: Buffer) {
    if (stream % 2 === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `HEADERS on stream ${stream}`);
    const part = flags & Flag.PADDED ? unpadded(payload) : payload;
    this.stream = stream;
    this.ends = (flags & Flag.END_STREAM) !== 0;
    this.whole = (flags & Flag.END_HEADERS) !== 0;
    this.#parts = [part.subarray(flags & Flag.PRIORITY ? PRIORITY_LENGTH : 0)];
  }

  get bytes(): Buffer {
    return this.#parts.length === 1 ? (this.#parts[0] as Buffer) : Buffer.concat(this.#parts);
  }

  /** @throws ConnectionError for another stream's, or beyond the most */
  continue(stream: number, flags: number, payload: Buffer, mostBytes: number): this {
    if (stream !== this.stream) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `CONTINUATION on stream ${stream}`);
    this.#cost += payload.length + FRAME_COST;
    if (this.#cost > mostBytes) {
      throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, `a header section of more than ${mostBytes} bytes`);
    }
    this.#parts.push(payload);
    this.whole = (flags & Flag.END_HEADERS) !== 0;
    return this;
  }
}
