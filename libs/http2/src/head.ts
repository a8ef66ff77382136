import { ConnectionError, ErrorCode, Flag, FrameType } from './codes.ts';
import { unpadded } from './frame-reader.ts';
import { HpackDecoder } from './hpack/decoder.ts';
import { hpackEncode } from './hpack/encoder.ts';

/** Header fields by their names in lower case, pseudo-header fields included. */
export type Head = Readonly<Record<string, string>>;

/** Header fields to send, pseudo-header fields first. */
export type OutgoingHead = Readonly<Record<string, string | number>>;

/** What PRIORITY takes of a HEADERS frame, in bytes. */
const PRIORITY_LENGTH = 5;

/** What no field may hold: RFC 9110 section 5.5, and what one octet cannot say. */
const UNFIT = /[^\t\x20-\x7e\x80-\xff]/;

/** @throws TypeError for a value that no header field may hold */
export function encodeHead(head: OutgoingHead): Buffer {
  const fields: [string, string][] = [];
  for (const name in head) {
    const value = String(head[name]);
    if (UNFIT.test(value)) throw new TypeError(`header field ${name} may not hold ${JSON.stringify(value)}`);
    fields.push([name, value]);
  }
  return hpackEncode(fields);
}

/** What a CONTINUATION counts beside its bytes, so that empty ones come to an end too. */
const FRAME_COST = 32;

/** A head that came whole. */
export interface ReceivedHead {
  readonly stream: number;
  readonly head: Head;
  /** The other side sends nothing more on the stream. */
  readonly ends: boolean;
}

/** Reads the heads of one direction of a connection: HEADERS, and CONTINUATION until it is whole (RFC 9113 section 6.10). */
export class HeadReader {
  readonly #decoder: HpackDecoder;
  readonly #maxList: number;
  /** A head that is not yet whole: nothing else may come before. */
  #begun: { readonly stream: number; readonly ends: boolean; readonly parts: Buffer[]; cost: number } | undefined;

  /**
   * @param maxTable what the settings allow the other side's compression table, in bytes
   * @param maxList the longest head, in bytes
   */
  constructor(maxTable: number, maxList: number) {
    this.#decoder = new HpackDecoder(maxTable, maxList);
    this.#maxList = maxList;
  }

  /** @throws ConnectionError when a head has begun, and this frame is not its next */
  expect(type: number, stream: number): void {
    if (this.#begun && (type !== FrameType.CONTINUATION || stream !== this.#begun.stream))
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'a head was not continued');
  }

  headers(stream: number, flags: number, payload: Buffer): ReceivedHead | undefined {
    const block = flags & Flag.PADDED ? unpadded(payload) : payload;
    this.#begun = { stream, ends: (flags & Flag.END_STREAM) !== 0, parts: [], cost: 0 };
    return this.continuation(flags, flags & Flag.PRIORITY ? block.subarray(PRIORITY_LENGTH) : block);
  }

  continuation(flags: number, part: Buffer): ReceivedHead | undefined {
    const begun = this.#begun;
    if (!begun) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'CONTINUATION of nothing');
    begun.cost += part.length + FRAME_COST;
    if (begun.cost > this.#maxList)
      throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, `a head of more than ${this.#maxList} bytes`);
    const last = (flags & Flag.END_HEADERS) !== 0;
    begun.parts.push(last ? part : Buffer.from(part));
    if (!last) return undefined;
    this.#begun = undefined;
    const { stream, ends, parts } = begun;
    return { stream, ends, head: this.#decode(parts.length === 1 ? part : Buffer.concat(parts)) };
  }

  /** Fields of the same name are joined by `, ` (RFC 9110 section 5.3). */
  #decode(block: Buffer): Head {
    const head: Record<string, string> = Object.create(null);
    for (const [name, value] of this.#decoder.decode(block)) {
      const before = head[name];
      head[name] = before === undefined ? value : `${before}, ${value}`;
    }
    return head;
  }
}
