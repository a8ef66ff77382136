import { ConnectionError, ErrorCode, Flag, FrameType } from './codes.ts';
import { unpadded } from './frame-reader.ts';

/** What PRIORITY takes of a HEADERS frame, in bytes. */
const PRIORITY_LENGTH = 5;

/** What each frame counts beside its bytes, so that empty ones come to an end too. */
const FRAME_COST = 32;

/** A header section that came whole, still compressed. */
export interface HeaderSection {
  readonly stream: number;
  readonly block: Buffer;
  /** The other side sends nothing more on the stream. */
  readonly ends: boolean;
}

interface Begun extends Omit<HeaderSection, 'block'> {
  readonly parts: Buffer[];
  cost: number;
}

/** Puts header sections together: HEADERS, and CONTINUATION until END_HEADERS (RFC 9113 sections 6.2 and 6.10). */
export class HeaderSections {
  readonly #maxBytes: number;
  /** One that is not yet whole: nothing else may come before. */
  #begun: Begun | undefined;

  /** @param maxBytes what one may come to, compressed and with a cost for each frame */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** @throws ConnectionError when one has begun, and this frame is not its next, or the other way round */
  expect(type: number, stream: number): void {
    const begun = this.#begun;
    if (type === FrameType.CONTINUATION ? begun?.stream === stream : !begun) return;
    const what = begun ? `a header section on stream ${begun.stream} was not continued` : 'CONTINUATION of nothing';
    throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, what);
  }

  headers(stream: number, flags: number, payload: Buffer): HeaderSection | undefined {
    const part = flags & Flag.PADDED ? unpadded(payload) : payload;
    this.#begun = { stream, ends: (flags & Flag.END_STREAM) !== 0, parts: [], cost: 0 };
    return this.continuation(flags, flags & Flag.PRIORITY ? part.subarray(PRIORITY_LENGTH) : part);
  }

  /** To be called only after `expect`. */
  continuation(flags: number, part: Buffer): HeaderSection | undefined {
    const begun = this.#begun as Begun;
    begun.cost += part.length + FRAME_COST;
    if (begun.cost > this.#maxBytes) {
      throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, `a header section of more than ${this.#maxBytes} bytes`);
    }
    const last = (flags & Flag.END_HEADERS) !== 0;
    // What waits for more must not keep all that was read with it.
    begun.parts.push(last ? part : Buffer.from(part));
    if (!last) return undefined;
    this.#begun = undefined;
    const { stream, ends, parts } = begun;
    return { stream, ends, block: parts.length === 1 ? part : Buffer.concat(parts) };
  }
}
