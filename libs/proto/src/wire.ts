/**
 * The protobuf wire format, as far as Konnectivity's packets need it
 * (https://protobuf.dev/programming-guides/encoding): varints, length-delimited fields, and skipping unknown fields.
 */

/** The bytes are not a packet. The message says what is wrong with them. No part of them was acted on. */
export class PacketError extends Error {
  override readonly name = 'PacketError';
}

const VARINT = 0;
const FIXED64 = 1;
const LENGTH_DELIMITED = 2;
const START_GROUP = 3;
const END_GROUP = 4;
const FIXED32 = 5;

/** The deepest nesting of groups that is skipped. Go's limit is 10000, but no peer sends groups. */
const MAX_GROUP_DEPTH = 32;
const MAX_FIELD_NUMBER = 2 ** 29 - 1;

/** Of a field: an int64, a string or bytes. */
export type Value = bigint | string | Uint8Array;

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export function varintTag(field: number): number {
  return (field << 3) | VARINT;
}

export function lengthTag(field: number): number {
  return (field << 3) | LENGTH_DELIMITED;
}

/** Reads fields from a range of bytes. Every method throws PacketError instead of reading beyond the range. */
export class WireReader {
  readonly #bytes: Uint8Array;
  readonly #end: number;
  #offset: number;

  constructor(bytes: Uint8Array, start = 0, end = bytes.length) {
    this.#bytes = bytes;
    this.#offset = start;
    this.#end = end;
  }

  /** The position of the next byte to read. */
  get offset(): number {
    return this.#offset;
  }

  /** Reads a length. @returns whether that many bytes are exactly the rest of the range */
  reachesEnd(): boolean {
    const length = Number(this.#varint());
    return this.#offset + length === this.#end;
  }

  /** Reads a field number and wire type as one number, to compare with `varintTag` and `lengthTag`. 0 at the end of the range. */
  tag(): number {
    if (this.#offset >= this.#end) return 0;
    const first = this.#bytes[this.#offset] as number;
    if (first >= 8 && first < 0x80) {
      this.#offset++;
      return first;
    }
    const tag = Number(this.#varint());
    const field = Math.floor(tag / 8);
    if (field < 1 || field > MAX_FIELD_NUMBER) throw new PacketError(`field number ${field} is out of range`);
    return tag;
  }

  /** Reads an enum or int32: the low 32 bits of the varint, as in every protobuf decoder. */
  int32(): number {
    const value = this.#varint();
    return typeof value === 'number' ? value | 0 : Number(BigInt.asIntN(32, value));
  }

  int64(): bigint {
    const value = this.#varint();
    return typeof value === 'number' ? BigInt(value) : BigInt.asIntN(64, value);
  }

  /** Returns a view of the bytes read, not a copy. @param length how many; by default, their number stands before them */
  bytes(length = Number(this.#varint())): Uint8Array {
    const start = this.#offset;
    if (length > this.#end - start) throw truncated();
    this.#offset = start + length;
    return this.#bytes.subarray(start, this.#offset);
  }

  string(): string {
    const bytes = this.bytes();
    if (bytes.length === 0) return '';
    try {
      return utf8.decode(bytes);
    } catch {
      throw new PacketError('a string is not valid UTF-8');
    }
  }

  /** Reads a value of the type of `like`. Undefined if a field with this tag has none of that type. */
  value(tag: number, like: Value): Value | undefined {
    const type = tag % 8;
    if (typeof like === 'bigint') return type === VARINT ? this.int64() : undefined;
    if (type !== LENGTH_DELIMITED) return undefined;
    return typeof like === 'string' ? this.string() : this.bytes();
  }

  /** Skips the value of an unknown field. */
  skip(tag: number, depth = 0): void {
    switch (tag % 8) {
      case VARINT:
        this.#varint();
        return;
      case FIXED64:
        this.bytes(8);
        return;
      case LENGTH_DELIMITED:
        this.bytes();
        return;
      case START_GROUP:
        this.#skipGroup(Math.floor(tag / 8), depth + 1);
        return;
      case FIXED32:
        this.bytes(4);
        return;
      default:
        throw new PacketError(`field ${Math.floor(tag / 8)} has the impossible wire type ${tag % 8}`);
    }
  }

  #skipGroup(field: number, depth: number): void {
    if (depth > MAX_GROUP_DEPTH) throw new PacketError(`groups nest deeper than ${MAX_GROUP_DEPTH}`);
    for (;;) {
      const tag = this.tag();
      if (tag === 0) throw truncated();
      if (tag % 8 !== END_GROUP) {
        this.skip(tag, depth);
        continue;
      }
      if (Math.floor(tag / 8) !== field) throw new PacketError(`group ${field} ends as ${Math.floor(tag / 8)}`);
      return;
    }
  }

  /** Returns a number if the value fits 28 bits (four bytes), as tags, lengths and almost every connectID do; otherwise a bigint. */
  #varint(): number | bigint {
    let value = 0;
    for (let shift = 0; shift < 28; shift += 7) {
      if (this.#offset >= this.#end) throw truncated();
      const byte = this.#bytes[this.#offset++] as number;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return this.#longVarint(value);
  }

  #longVarint(low28: number): bigint {
    let value = BigInt(low28);
    for (let shift = 28n; shift < 70n; shift += 7n) {
      if (this.#offset >= this.#end) throw truncated();
      const byte = this.#bytes[this.#offset++] as number;
      if (shift === 63n && byte > 1) throw new PacketError('a varint is longer than 64 bits');
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw new PacketError('a varint is longer than 64 bits');
  }
}

function truncated(): PacketError {
  return new PacketError('the packet is truncated');
}

/** Size of a field in bytes: a tag (one byte, since all field numbers here are below 16) and the value. */
export function sizeOf(value: Value): number {
  if (typeof value === 'bigint') return value === 0n ? 0 : 1 + longSize(value);
  if (value.length === 0) return 0;
  return lengthDelimitedSize(typeof value === 'string' ? Buffer.byteLength(value) : value.length);
}

/** Size of a field of `length` bytes, including its tag and its length. */
export function lengthDelimitedSize(length: number): number {
  let size = 2 + length;
  for (let rest = length; rest > 0x7f; rest >>>= 7) size++;
  return size;
}

function longSize(value: bigint): number {
  if (value > 0n && value < 0x80n) return 1;
  let size = 1;
  for (let rest = BigInt.asUintN(64, value) >> 7n; rest > 0n; rest >>= 7n) size++;
  return size;
}

/**
 * Writes fields into one buffer whose size the caller has computed. Fields at their default are left out (proto3). All field numbers here are below 16,
 * so tags have one byte.
 */
export class WireWriter {
  readonly buffer: Buffer;
  #offset: number;

  /** @param room bytes to reserve at the start, which are not written */
  constructor(size: number, room = 0) {
    this.buffer = Buffer.allocUnsafe(room + size);
    this.#offset = room;
  }

  value(field: number, value: Value): void {
    if (typeof value === 'bigint') {
      if (value === 0n) return;
      this.buffer[this.#offset++] = (field << 3) | VARINT;
      if (value > 0n && value <= 0x7fffffffn) this.#varint(Number(value));
      else this.#longVarint(BigInt.asUintN(64, value));
      return;
    }
    if (value.length === 0) return;
    const isText = typeof value === 'string';
    const length = isText ? Buffer.byteLength(value) : value.length;
    this.messageHead(field, length);
    if (isText) this.buffer.write(value, this.#offset);
    else this.buffer.set(value, this.#offset);
    this.#offset += length;
  }

  messageHead(field: number, length: number): void {
    this.buffer[this.#offset++] = (field << 3) | LENGTH_DELIMITED;
    this.#varint(length);
  }

  #varint(value: number): void {
    let rest = value;
    for (; rest > 0x7f; rest >>>= 7) this.buffer[this.#offset++] = (rest & 0x7f) | 0x80;
    this.buffer[this.#offset++] = rest;
  }

  #longVarint(value: bigint): void {
    let rest = value;
    for (; rest > 0x7fn; rest >>= 7n) this.buffer[this.#offset++] = Number(rest & 0x7fn) | 0x80;
    this.buffer[this.#offset++] = Number(rest);
  }
}
