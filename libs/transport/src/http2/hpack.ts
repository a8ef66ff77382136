import { CODE, ConnectionError } from './frames.ts';
import { decodeHuffman } from './huffman.ts';
import { STATIC_FIELDS } from './static-fields.ts';

/** A field of a header section. */
export type Field = readonly [name: string, value: string];

/** What each field counts beside its name and its value, in a table and in a section (RFC 7541 section 4.1). */
const FIELD_COST = 32;

/** The dynamic table's size, in such units: HPACK's default, which we leave as it is. */
const TABLE_SIZE = 4_096;

/** The longest integer that makes sense here; larger ones would only cost memory. */
const MAX_INTEGER = 2 ** 24;

/** Reads the header sections of one connection (RFC 7541). */
export class FieldDecoder {
  readonly #mostBytes: number;
  /** The dynamic table, newest last. */
  readonly #table: Field[] = [];
  #tableSize = 0;
  #tableLimit = TABLE_SIZE;
  #bytes: Buffer = Buffer.alloc(0);
  #offset = 0;

  /** @param mostBytes what a section may come to when it is unpacked */
  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  /** @throws ConnectionError: what cannot be read leaves the two ends' tables unlike each other */
  decode(bytes: Buffer): Field[] {
    this.#bytes = bytes;
    this.#offset = 0;
    const fields: Field[] = [];
    let size = 0;
    while (this.#offset < bytes.length) {
      const field = this.#next(fields.length === 0);
      if (!field) continue;
      size += costOf(field);
      // One indexed field of a byte may unpack to 4 KiB.
      if (size > this.#mostBytes) {
        throw new ConnectionError(CODE.ENHANCE_YOUR_CALM, `header fields of more than ${this.#mostBytes} bytes`);
      }
      fields.push(field);
    }
    return fields;
  }

  /** @returns undefined for what is no field: a new size of the table, which stands first only */
  #next(first: boolean): Field | undefined {
    const byte = this.#bytes[this.#offset] as number;
    if (byte & 0x80) return this.#indexed(this.#integer(7));
    if (byte & 0x40) {
      const field = this.#literal(6);
      this.#insert(field);
      return field;
    }
    if (!(byte & 0x20)) return this.#literal(4);
    const limit = this.#integer(5);
    if (!first || limit > TABLE_SIZE) throw unreadable('a table size that is not allowed');
    this.#tableLimit = limit;
    this.#evict();
    return undefined;
  }

  #indexed(index: number): Field {
    const { length } = STATIC_FIELDS;
    const field = index <= length ? STATIC_FIELDS[index - 1] : this.#table[this.#table.length - (index - length)];
    if (!field) throw unreadable(`there is no field ${index}`);
    return field;
  }

  #literal(prefix: number): Field {
    const index = this.#integer(prefix);
    const name = index === 0 ? this.#string() : this.#indexed(index)[0];
    return [name, this.#string()];
  }

  #insert(field: Field): void {
    this.#table.push(field);
    this.#tableSize += costOf(field);
    this.#evict();
  }

  #evict(): void {
    while (this.#tableSize > this.#tableLimit) this.#tableSize -= costOf(this.#table.shift() as Field);
  }

  #string(): string {
    const packed = ((this.#bytes[this.#offset] ?? 0) & 0x80) !== 0;
    const length = this.#integer(7);
    const end = this.#offset + length;
    if (end > this.#bytes.length) throw unreadable('a string ends amid its bytes');
    const start = this.#offset;
    this.#offset = end;
    if (!packed) return this.#bytes.toString('latin1', start, end);
    const text = decodeHuffman(this.#bytes.subarray(start, end));
    if (text === undefined) throw unreadable('a string is no Huffman code');
    return text;
  }

  /** An integer behind a prefix of so many bits (section 5.1). */
  #integer(prefix: number): number {
    const most = 2 ** prefix - 1;
    let value = this.#byte() & most;
    if (value < most) return value;
    for (let factor = 1; value < MAX_INTEGER; factor *= 128) {
      const byte = this.#byte();
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
    }
    throw unreadable('an integer is too large');
  }

  #byte(): number {
    const byte = this.#bytes[this.#offset++];
    if (byte === undefined) throw unreadable('it ends amid a field');
    return byte;
  }
}

function costOf([name, value]: Field): number {
  return name.length + value.length + FIELD_COST;
}

function unreadable(why: string): ConnectionError {
  return new ConnectionError(CODE.COMPRESSION_ERROR, `header fields that cannot be read: ${why}`);
}

const STATUS_OK = Buffer.of(0x88);

/** Writes a header section that needs no table: it can be made once and sent on any connection. */
export function encodeFields(fields: readonly Field[]): Buffer {
  return Buffer.concat(
    fields.flatMap(([name, value]) =>
      name === ':status' && value === '200' ? [STATUS_OK] : [Buffer.of(0), ...literal(name), ...literal(value)],
    ),
  );
}

function literal(text: string): Buffer[] {
  const bytes = Buffer.from(text, 'latin1');
  const length = [];
  let rest = bytes.length;
  if (rest >= 127) {
    length.push(127);
    for (rest -= 127; rest >= 128; rest >>= 7) length.push((rest & 127) | 128);
  }
  return [Buffer.of(...length, rest), bytes];
}
