import { ConnectionError, ErrorCode, Flag, FrameType } from '../codes.ts';
import { unpadded } from './frame-reader.ts';

/** Size of the priority fields in a HEADERS frame, in bytes. */
const PRIORITY_LENGTH = 5;

/** Cost of each frame on top of its bytes, so that empty ones are bounded too. */
const FRAME_COST = 32;

/** A complete header section, still compressed. */
export interface HeaderSection {
  readonly stream: number;
  readonly block: Buffer;
  /** Whether the other side sends nothing more on the stream. */
  readonly ends: boolean;
}

interface Begun extends Omit<HeaderSection, 'block'> {
  readonly parts: Buffer[];
  cost: number;
}

/** Assembles header sections: HEADERS, and CONTINUATION until END_HEADERS (RFC 9113 sections 6.2 and 6.10). */
export class HeaderSections {
  readonly #maxBytes: number;
  /** An incomplete section. No other frame may come before its end. */
  #begun: Begun | undefined;

  /** @param maxBytes largest section, compressed, with a cost for each frame */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** @throws ConnectionError if a section is incomplete and this frame does not continue it, or if there is none to continue */
  expect(type: number, stream: number): void {
    const begun = this.#begun;
    if (type === FrameType.CONTINUATION ? begun?.stream === stream : !begun) return;
    const what = begun
      ? `a header section on stream ${begun.stream} was not continued`
      : 'CONTINUATION without HEADERS';
    throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, what);
  }

  headers(stream: number, flags: number, payload: Buffer): HeaderSection | undefined {
    const part = flags & Flag.PADDED ? unpadded(payload) : payload;
    this.#begun = { stream, ends: (flags & Flag.END_STREAM) !== 0, parts: [], cost: 0 };
    return this.continuation(flags, flags & Flag.PRIORITY ? part.subarray(PRIORITY_LENGTH) : part);
  }

  /** Call only after `expect`. */
  continuation(flags: number, part: Buffer): HeaderSection | undefined {
    const begun = this.#begun as Begun;
    begun.cost += part.length + FRAME_COST;
    if (begun.cost > this.#maxBytes) {
      throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, `a header section of more than ${this.#maxBytes} bytes`);
    }
    const last = (flags & Flag.END_HEADERS) !== 0;
    // A copy: a view would keep the whole chunk that it was read with.
    begun.parts.push(last ? part : Buffer.from(part));
    if (!last) return undefined;
    this.#begun = undefined;
    const { stream, ends, parts } = begun;
    return { stream, ends, block: parts.length === 1 ? part : Buffer.concat(parts) };
  }
}
