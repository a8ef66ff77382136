import { type HeaderSection, HeaderSections } from './header-section.ts';
import { HpackDecoder } from './hpack/decoder.ts';
import { hpackEncode } from './hpack/encoder.ts';
import type { Field } from './section.ts';

/** Header fields by their names in lower case, pseudo-header fields included. */
export type Head = Readonly<Record<string, string>>;

/** Header fields to send, pseudo-header fields first. */
export type OutgoingHead = Readonly<Record<string, string | number>>;

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

/** A head that came whole. */
export interface ReceivedHead {
  readonly stream: number;
  readonly fields: readonly Field[];
  /** The other side sends nothing more on the stream. */
  readonly ends: boolean;
}

/** Reads the heads of one direction of a connection. */
export class HeadReader {
  readonly #decoder: HpackDecoder;
  readonly #sections: HeaderSections;

  /**
   * @param maxTable what the settings allow the other side's compression table, in bytes
   * @param maxList the longest head, in bytes
   */
  constructor(maxTable: number, maxList: number) {
    this.#decoder = new HpackDecoder(maxTable, maxList);
    this.#sections = new HeaderSections(maxList);
  }

  /** @throws ConnectionError when a head has begun, and this frame is not its next */
  expect(type: number, stream: number): void {
    this.#sections.expect(type, stream);
  }

  headers(stream: number, flags: number, payload: Buffer): ReceivedHead | undefined {
    return this.#decode(this.#sections.headers(stream, flags, payload));
  }

  continuation(flags: number, part: Buffer): ReceivedHead | undefined {
    return this.#decode(this.#sections.continuation(flags, part));
  }

  #decode(section: HeaderSection | undefined): ReceivedHead | undefined {
    if (!section) return undefined;
    const { stream, block, ends } = section;
    return { stream, fields: this.#decoder.decode(block), ends };
  }
}

/** Fields of the same name are joined by `, ` (RFC 9110 section 5.3). */
export function headOf(fields: readonly Field[]): Head {
  const head: Record<string, string> = Object.create(null);
  for (const [name, value] of fields) {
    const before = head[name];
    head[name] = before === undefined ? value : `${before}, ${value}`;
  }
  return head;
}
