import { ConnectionError, DEFAULT_SETTINGS, ErrorCode, HeadTooLong } from './frames.ts';
import type { Field } from './heads.ts';

/**
 * How many bits HPACK's code has for each octet, and at the end for EOS (RFC 7541 appendix B). The code is canonical: among
 * codes of one length the smaller octet has the smaller code, so the lengths say it all.
 */
// biome-ignore format: sixteen a line
const LENGTHS = [
  13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
  28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
  6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
  5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
  13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
  7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
  15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
  6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
  20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
  24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
  22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
  21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
  26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
  19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
  20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
  26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
  30,
];

const EOS = 256;
const LONGEST_CODE = 30;

/** Of the codes with so many bits: the first, how many there are, and where their octets begin in `OCTETS`. */
const FIRST = new Uint32Array(LONGEST_CODE + 1);
const COUNT = new Uint32Array(LONGEST_CODE + 1);
const START = new Uint32Array(LONGEST_CODE + 1);

/** All octets, and EOS, by their codes. */
const OCTETS = new Uint16Array(LENGTHS.length);

// Once for each code and not for each bit of each: a function that runs hot while a program starts brings in V8's optimizing compiler, whose
// own code takes 4 MB that a program at rest does without.
for (const length of LENGTHS) (COUNT[length] as number)++;
for (let bits = 1; bits <= LONGEST_CODE; bits++) {
  FIRST[bits] = ((FIRST[bits - 1] as number) + (COUNT[bits - 1] as number)) << 1;
  START[bits] = (START[bits - 1] as number) + (COUNT[bits - 1] as number);
}
{
  const next = START.slice();
  LENGTHS.forEach((length, octet) => {
    OCTETS[(next[length] as number)++] = octet;
  });
}

/** Where a string is put together, in bytes: longer ones are rare, and get room of their own. */
const STRING_ROOM = Buffer.allocUnsafeSlow(1_024);

/** The shortest code has so many bits. */
const SHORTEST_CODE = 5;

/**
 * A string that was sent in HPACK's Huffman code.
 * @throws ConnectionError for EOS in it, or for padding that is none
 */
function huffmanDecode(bytes: Uint8Array, start: number, end: number): string {
  const most = Math.ceil(((end - start) * 8) / SHORTEST_CODE);
  const text = most <= STRING_ROOM.length ? STRING_ROOM : Buffer.allocUnsafe(most);
  let length = 0;
  let code = 0;
  let depth = 0;
  for (let at = start; at < end; at++) {
    const byte = bytes[at] as number;
    for (let bit = 7; bit >= 0; bit--) {
      code = (code << 1) | ((byte >> bit) & 1);
      if (++depth < SHORTEST_CODE) continue;
      const place = code - (FIRST[depth] as number);
      // A code behind the last one with so many bits begins a longer one.
      if (place >= (COUNT[depth] as number)) continue;
      const octet = OCTETS[(START[depth] as number) + place] as number;
      if (octet === EOS) throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, 'HPACK: EOS in a string');
      text[length++] = octet;
      code = 0;
      depth = 0;
    }
  }
  // Padding is the beginning of EOS: up to seven ones.
  if (depth > 7 || code !== (1 << depth) - 1) {
    throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, 'HPACK: a string with bad padding');
  }
  return text.toString('latin1', 0, length);
}

/** HPACK's fixed table of fields (RFC 7541 appendix A), from index 1 on. */
const STATIC_TABLE: readonly (readonly [name: string, value: string])[] = [
  [':authority', ''],
  [':method', 'GET'],
  [':method', 'POST'],
  [':path', '/'],
  [':path', '/index.html'],
  [':scheme', 'http'],
  [':scheme', 'https'],
  [':status', '200'],
  [':status', '204'],
  [':status', '206'],
  [':status', '304'],
  [':status', '400'],
  [':status', '404'],
  [':status', '500'],
  ['accept-charset', ''],
  ['accept-encoding', 'gzip, deflate'],
  ['accept-language', ''],
  ['accept-ranges', ''],
  ['accept', ''],
  ['access-control-allow-origin', ''],
  ['age', ''],
  ['allow', ''],
  ['authorization', ''],
  ['cache-control', ''],
  ['content-disposition', ''],
  ['content-encoding', ''],
  ['content-language', ''],
  ['content-length', ''],
  ['content-location', ''],
  ['content-range', ''],
  ['content-type', ''],
  ['cookie', ''],
  ['date', ''],
  ['etag', ''],
  ['expect', ''],
  ['expires', ''],
  ['from', ''],
  ['host', ''],
  ['if-match', ''],
  ['if-modified-since', ''],
  ['if-none-match', ''],
  ['if-range', ''],
  ['if-unmodified-since', ''],
  ['last-modified', ''],
  ['link', ''],
  ['location', ''],
  ['max-forwards', ''],
  ['proxy-authenticate', ''],
  ['proxy-authorization', ''],
  ['range', ''],
  ['referer', ''],
  ['refresh', ''],
  ['retry-after', ''],
  ['server', ''],
  ['set-cookie', ''],
  ['strict-transport-security', ''],
  ['transfer-encoding', ''],
  ['user-agent', ''],
  ['vary', ''],
  ['via', ''],
  ['www-authenticate', ''],
];

/**
 * A block of no more bytes is read as one text, and its strings are parts of it, which V8 keeps as long as one of them: a tunnel keeps its
 * destination, so a longer text would cost memory that no limit counts.
 */
const SHORT_BLOCK = 1024;

/** What an entry costs beside its two strings, in bytes (RFC 7541 section 4.1). */
const ENTRY_OVERHEAD = 32;

/** An index from here on goes on in the next byte, if it has the four bits of a field that stays in no table. */
const LONG_INDEX = 15;

/** A string's length from here on goes on in the next byte, or the string has Huffman's code. */
const LONG_STRING = 127;

const NO_BLOCK = Buffer.alloc(0);

/** Reads the header blocks of one direction of a connection (RFC 7541). */
export class HpackDecoder {
  readonly #maxList: number;
  readonly #maxFields: number;
  /** The newest first. */
  #table: Field[] = [];
  #tableBytes = 0;
  #tableLimit = DEFAULT_SETTINGS.headerTableSize;
  #block: Buffer = NO_BLOCK;
  #at = 0;
  /** Sizes of the table that this block has set. */
  #resizes = 0;
  /** The octets of a short block as characters: to read all at once takes V8 as long as to read one string. */
  #text: string | undefined;

  /**
   * A list of up to twice as much is read, and its fields are left out.
   * @param maxList the longest list of fields, in bytes
   * @param maxFields the most fields of a list
   */
  constructor(maxList: number, maxFields = Number.POSITIVE_INFINITY) {
    this.#maxList = maxList;
    this.#maxFields = maxFields;
  }

  /**
   * Returns undefined for a list that is longer than `maxList`, or of more fields than `maxFields`.
   * @throws ConnectionError for a block that breaks the RFC, or unpacks to more
   */
  decode(block: Buffer): Field[] | undefined {
    this.#block = block;
    this.#at = 0;
    this.#resizes = 0;
    const text = block.length <= SHORT_BLOCK ? block.toString('latin1') : undefined;
    this.#text = text;
    const fields: Field[] = [];
    let bytes = 0;
    let left = this.#maxFields;
    while (this.#at < block.length) {
      const first = block[this.#at] as number;
      let field: Field | undefined;
      // Links send short strings without Huffman's code, which stay in no table. They are read here: a dial's heads have twenty.
      if (first < LONG_INDEX && text !== undefined) {
        const nameLength = first === 0 ? (block[this.#at + 1] as number) : 0;
        const nameEnd = this.#at + (first === 0 ? 2 + nameLength : 1);
        const valueLength = block[nameEnd] as number;
        const end = nameEnd + 1 + valueLength;
        // No byte of a name or a value is missing, or its length is NaN.
        if (nameLength < LONG_STRING && valueLength < LONG_STRING && end <= block.length) {
          const name = first === 0 ? text.slice(this.#at + 2, nameEnd) : (STATIC_TABLE[first - 1] as Field)[0];
          field = [name, text.slice(nameEnd + 1, end)];
          this.#at = end;
        }
      }
      field ??= this.#instruction(first, bytes === 0);
      if (!field) continue;
      bytes += field[0].length + field[1].length + ENTRY_OVERHEAD;
      if (--left >= 0 && bytes <= this.#maxList) fields.push(field);
      else if (bytes > 2 * this.#maxList) throw new HeadTooLong(`a head of more than ${2 * this.#maxList} bytes`);
      else if (left < -this.#maxFields) throw new HeadTooLong(`a head of more than ${2 * this.#maxFields} fields`);
    }
    this.#text = undefined;
    // It would keep the whole chunk that it was read with.
    this.#block = NO_BLOCK;
    return bytes <= this.#maxList && left >= 0 ? fields : undefined;
  }

  /** @param begins no field came before: only there may the table's size change (section 4.2) */
  #instruction(first: number, begins: boolean): Field | undefined {
    if (first & 0x80) return this.#entry(this.#integer(7));
    if ((first & 0xe0) === 0x20) {
      if (!begins) throw broken("a table's size behind a field");
      // The smallest since the last block, and the present one.
      if (++this.#resizes > 2) throw broken('more than two sizes of its table');
      this.#resize(this.#integer(5));
      return undefined;
    }
    const indexed = (first & 0xc0) === 0x40;
    const name = this.#integer(indexed ? 6 : 4);
    const field: Field = [name > 0 ? this.#entry(name)[0] : this.#string(indexed), this.#string(indexed)];
    if (!indexed) return field;
    this.#table.unshift(field);
    this.#tableBytes += size(field);
    this.#evict();
    return field;
  }

  #entry(index: number): Field {
    const field = STATIC_TABLE[index - 1] ?? this.#table[index - 1 - STATIC_TABLE.length];
    if (!field) throw broken(`no entry ${index}`);
    return field;
  }

  #resize(limit: number): void {
    if (limit > DEFAULT_SETTINGS.headerTableSize) throw broken(`a table of ${limit} bytes`);
    this.#tableLimit = limit;
    this.#evict();
  }

  #evict(): void {
    while (this.#tableBytes > this.#tableLimit) this.#tableBytes -= size(this.#table.pop() as Field);
  }

  /** RFC 7541 section 5.1. */
  #integer(prefix: number): number {
    const mask = 2 ** prefix - 1;
    const first = this.#block[this.#at++];
    if (first === undefined) throw broken('a block that ends too early');
    let value = first & mask;
    if (value < mask) return value;
    for (let shift = 0; shift <= 21; shift += 7) {
      const byte = this.#block[this.#at++];
      if (byte === undefined) throw broken('a block that ends too early');
      value += (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw broken('a number of more than 28 bits');
  }

  /** @param stays whether it stays in the table, and so must not keep the whole block's text */
  #string(stays: boolean): string {
    const coded = ((this.#block[this.#at] ?? 0) & 0x80) !== 0;
    const length = this.#integer(7);
    const end = this.#at + length;
    if (end > this.#block.length) throw broken('a string longer than its block');
    const start = this.#at;
    this.#at = end;
    if (coded) return huffmanDecode(this.#block, start, end);
    if (stays || this.#text === undefined) return this.#block.toString('latin1', start, end);
    return this.#text.slice(start, end);
  }
}

function size(field: Field): number {
  return field[0].length + field[1].length + ENTRY_OVERHEAD;
}

function broken(what: string): ConnectionError {
  return new ConnectionError(ErrorCode.COMPRESSION_ERROR, `HPACK: ${what}`);
}

interface Known {
  /** Where the static table has the name first. */
  readonly index: number;
  /** Where it has the name with a value. */
  readonly values: Map<string, number>;
}

const NAMES = new Map<string, Known>();
STATIC_TABLE.forEach(([name, value], index) => {
  const known = NAMES.get(name) ?? { index: index + 1, values: new Map() };
  NAMES.set(name, known);
  known.values.set(value, index + 1);
});

/** Room for a number and its prefix, in bytes. */
const NUMBER_BYTES = 5;

/** A text of no more characters is written faster one by one than by a call into the runtime. */
const SHORT_TEXT = 40;

/** Names of fields as they are sent, which the programs' texts have. What comes from elsewhere is not remembered. */
const SENT_NAMES = new Map<string, Buffer>();
const SENT_NAMES_MOST = 256;

function sentName(name: string): Buffer {
  const known = NAMES.get(name);
  const bytes = Buffer.allocUnsafeSlow(2 * NUMBER_BYTES + name.length);
  const at = known ? writeNumber(bytes, 0, 0, 4, known.index) : writeText(bytes, writeNumber(bytes, 0, 0, 4, 0), name);
  const sent = bytes.subarray(0, at);
  if (SENT_NAMES.size < SENT_NAMES_MOST) SENT_NAMES.set(name, sent);
  return sent;
}

/**
 * A block of header fields without a compression table: literals and the static table only (RFC 7541 section 6.2.2). Heads
 * on a link are short and hardly repeat, and what is not remembered cannot get out of step.
 */
export function hpackEncode(fields: readonly (readonly [name: string, value: string])[]): Buffer {
  let room = 0;
  for (const field of fields) room += field[0].length + field[1].length + 3 * NUMBER_BYTES;
  const bytes = Buffer.allocUnsafe(room);
  let at = 0;
  for (const field of fields) {
    const whole = NAMES.get(field[0])?.values.get(field[1]);
    // The static table has 61 entries.
    if (whole !== undefined) {
      bytes[at++] = 0x80 | whole;
      continue;
    }
    const name = SENT_NAMES.get(field[0]) ?? sentName(field[0]);
    bytes.set(name, at);
    at += name.length;
    const value = field[1];
    const length = value.length;
    if (length > SHORT_TEXT) at = writeText(bytes, at, value);
    else {
      bytes[at++] = length;
      for (let index = 0; index < length; index++) bytes[at++] = value.charCodeAt(index);
    }
  }
  return bytes.subarray(0, at);
}

function writeText(bytes: Buffer, at: number, text: string): number {
  const start = writeNumber(bytes, at, 0, 7, text.length);
  return start + bytes.write(text, start, 'latin1');
}

/** RFC 7541 section 5.1. */
function writeNumber(bytes: Buffer, start: number, flags: number, prefix: number, value: number): number {
  let at = start;
  const mask = 2 ** prefix - 1;
  if (value < mask) {
    bytes[at++] = flags | value;
    return at;
  }
  bytes[at++] = flags | mask;
  let rest = value - mask;
  for (; rest >= 0x80; rest >>>= 7) bytes[at++] = (rest & 0x7f) | 0x80;
  bytes[at++] = rest;
  return at;
}
