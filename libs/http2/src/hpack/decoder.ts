import { ConnectionError, ErrorCode } from '../codes.ts';
import type { Field } from '../section.ts';
import { huffmanDecode } from './huffman.ts';
import { STATIC_TABLE } from './static-table.ts';

/** What an entry costs beside its two strings, in bytes (RFC 7541 section 4.1). */
const ENTRY_OVERHEAD = 32;

const NO_BLOCK = Buffer.alloc(0);

/** Reads the header blocks of one direction of a connection (RFC 7541). */
export class HpackDecoder {
  readonly #maxTable: number;
  readonly #maxList: number;
  /** The newest first. */
  #table: Field[] = [];
  #tableBytes = 0;
  #tableLimit: number;
  #block: Buffer = NO_BLOCK;
  #at = 0;

  /**
   * @param maxTable what the settings allow the other side's table, in bytes
   * @param maxList the longest list of fields, in bytes
   */
  constructor(maxTable: number, maxList: number) {
    this.#maxTable = maxTable;
    this.#tableLimit = maxTable;
    this.#maxList = maxList;
  }

  /** @throws ConnectionError for a block that breaks the RFC or is too long: what follows could not be read either */
  decode(block: Buffer): Field[] {
    this.#block = block;
    this.#at = 0;
    const fields: Field[] = [];
    let bytes = 0;
    while (this.#at < block.length) {
      const field = this.#instruction(block[this.#at] as number, fields.length === 0);
      if (!field) continue;
      bytes += size(field);
      if (bytes > this.#maxList)
        throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, `a head of more than ${this.#maxList} bytes`);
      fields.push(field);
    }
    return fields;
  }

  /** @param begins no field came before: only there may the table's size change (section 4.2) */
  #instruction(first: number, begins: boolean): Field | undefined {
    if (first & 0x80) return this.#entry(this.#integer(7));
    if ((first & 0xe0) === 0x20) {
      if (!begins) throw broken("a table's size behind a field");
      this.#resize(this.#integer(5));
      return undefined;
    }
    const indexed = (first & 0xc0) === 0x40;
    const name = this.#integer(indexed ? 6 : 4);
    const field: Field = [name > 0 ? this.#entry(name)[0] : this.#string(), this.#string()];
    if (indexed) this.#insert(field);
    return field;
  }

  #entry(index: number): Field {
    const field = STATIC_TABLE[index - 1] ?? this.#table[index - 1 - STATIC_TABLE.length];
    if (!field) throw broken(`no entry ${index}`);
    return field;
  }

  #insert(field: Field): void {
    this.#table.unshift(field);
    this.#tableBytes += size(field);
    this.#evict();
  }

  #resize(limit: number): void {
    if (limit > this.#maxTable) throw broken(`a table of ${limit} bytes`);
    this.#tableLimit = limit;
    this.#evict();
  }

  #evict(): void {
    while (this.#tableBytes > this.#tableLimit) this.#tableBytes -= size(this.#table.pop() as Field);
  }

  /** RFC 7541 section 5.1. */
  #integer(prefix: number): number {
    const mask = 2 ** prefix - 1;
    let value = this.#byte() & mask;
    if (value < mask) return value;
    for (let shift = 0; shift <= 21; shift += 7) {
      const byte = this.#byte();
      value += (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw broken('a number of more than 28 bits');
  }

  #string(): string {
    const coded = ((this.#block[this.#at] ?? 0) & 0x80) !== 0;
    const length = this.#integer(7);
    const end = this.#at + length;
    if (end > this.#block.length) throw broken('a string longer than its block');
    const start = this.#at;
    this.#at = end;
    return coded ? huffmanDecode(this.#block.subarray(start, end)) : this.#block.toString('latin1', start, end);
  }

  #byte(): number {
    const byte = this.#block[this.#at++];
    if (byte === undefined) throw broken('a block that ends too early');
    return byte;
  }
}

function size([name, value]: Field): number {
  return name.length + value.length + ENTRY_OVERHEAD;
}

function broken(what: string): ConnectionError {
  return new ConnectionError(ErrorCode.COMPRESSION_ERROR, `HPACK: ${what}`);
}
