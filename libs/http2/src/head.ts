import { type HeaderSection, HeaderSections } from './connection/header-section.ts';
import { HpackDecoder } from './hpack/decoder.ts';
import { hpackEncode } from './hpack/encoder.ts';
import type { Field } from './section.ts';

/** Header fields by name in lower case, with pseudo-header fields. */
export type Head = Readonly<Record<string, string>>;

/** Header fields to send, pseudo-header fields first. */
export type OutgoingHead = Readonly<Record<string, string | number>>;

/** Characters that no field may hold: RFC 9110 section 5.5, and characters above one octet. */
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

/** A complete head. */
export interface ReceivedHead {
  readonly stream: number;
  readonly fields: readonly Field[];
  /** Whether the other side sends nothing more on the stream. */
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

  /** @throws ConnectionError if a head is incomplete and this frame does not continue it */
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

/** Joins fields of the same name with `, ` (RFC 9110 section 5.3). */
export function headOf(fields: readonly Field[]): Head {
  const head: Record<string, string> = Object.create(null);
  for (const [name, value] of fields) {
    const before = head[name];
    head[name] = before === undefined ? value : `${before}, ${value}`;
  }
  return head;
}
