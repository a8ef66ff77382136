/** An element of DER (X.690): a tag, and what is in it. */
interface Element {
  readonly tag: number;
  readonly value: Buffer;
  /** With tag and length. */
  readonly whole: Buffer;
}

/** Reads elements one after the other, and takes only DER: one length has one encoding. */
export class DerReader {
  readonly #der: Buffer;
  #at = 0;

  constructor(der: Buffer) {
    this.#der = der;
  }

  get empty(): boolean {
    return this.#at >= this.#der.length;
  }

  /** @throws Error if the next element is malformed, or has another tag */
  read(tag?: number): Element {
    const der = this.#der;
    const at = this.#at;
    const found = der[at];
    const short = der[at + 1];
    // A tag of several bytes (31) is in no certificate.
    if (found === undefined || short === undefined || (found & 0x1f) === 0x1f) throw new Error('malformed DER');
    if (tag !== undefined && tag !== found) throw new Error('unexpected element of DER');
    const bytes = short < 0x80 ? 0 : short & 0x7f;
    if (short === 0x80 || bytes > 4 || at + 2 + bytes > der.length) throw new Error('malformed DER');
    const length = bytes === 0 ? short : der.readUIntBE(at + 2, bytes);
    const start = at + 2 + bytes;
    const shortest = bytes === 0 || (length >= 0x80 && der[at + 2] !== 0);
    if (!shortest || start + length > der.length) throw new Error('malformed DER');
    this.#at = start + length;
    return { tag: found, value: der.subarray(start, this.#at), whole: der.subarray(at, this.#at) };
  }

  /** Whether the next element has a tag. */
  at(tag: number): boolean {
    return this.#der[this.#at] === tag;
  }

  /** The next element if it has a tag. */
  optional(tag: number): Element | undefined {
    return this.at(tag) ? this.read(tag) : undefined;
  }
}

/** Tags of DER. */
export const TAG = {
  ...{ boolean: 0x01, integer: 0x02, bits: 0x03, octets: 0x04, null: 0x05, oid: 0x06, utf8: 0x0c },
  ...{ numeric: 0x12, printable: 0x13, t61: 0x14, ia5: 0x16, utcTime: 0x17, time: 0x18, bmp: 0x1e },
  ...{ sequence: 0x30, set: 0x31 },
} as const;

/** An integer that is not negative, in its only encoding. */
export function unsigned(value: Buffer): bigint {
  return BigInt(`0x${shortest(value).toString('hex')}`);
}

export function shortest(value: Buffer): Buffer {
  const [high = 0x80, next = 0x80] = value;
  if (high >= 0x80 || (high === 0 && value.length > 1 && next < 0x80)) throw new Error('it has a malformed integer');
  return value;
}

/** An integer's bytes as people write serial numbers: in upper-case hex without leading zeros. */
export function serialText(value: Buffer): string {
  return value
    .toString('hex')
    .replace(/^0+(?=.)/, '')
    .toUpperCase();
}

/** The bytes of a BIT STRING, of which the first counts the bits that are not used at its end. */
export function bitsIn({ value }: { readonly value: Buffer }): Buffer {
  const [unused = 8] = value;
  const last = value.at(-1) ?? 0;
  const bad = unused > 7 || (value.length === 1 && unused > 0) || (last & ((1 << unused) - 1)) !== 0;
  if (bad) throw new Error('it has malformed bits');
  return value.subarray(1);
}

/** A BOOLEAN that may be absent, which means false. */
export function booleanIn(reader: DerReader): boolean {
  const value = reader.optional(TAG.boolean)?.value;
  if (!value) return false;
  if (value.length !== 1 || (value[0] !== 0 && value[0] !== 0xff)) throw new Error('it has a malformed boolean');
  return value[0] === 0xff;
}

/** The object identifier that comes next, as hex. */
export function oidIn(reader: DerReader): string {
  const { value } = reader.read(TAG.oid);
  // A part of it ends with a byte below 0x80, and does not begin with 0x80.
  const isPadded = value.some((byte, at) => byte === 0x80 && (at === 0 || (value[at - 1] as number) < 0x80));
  const well = value.length > 0 && (value.at(-1) ?? 0x80) < 0x80 && !isPadded;
  if (!well) throw new Error('it has a malformed object identifier');
  return value.toString('hex');
}

/** The elements of a SEQUENCE, of one tag if it is given. */
export function rowOf(der: Buffer, tag?: number) {
  const row = new DerReader(new DerReader(der).read(TAG.sequence).value);
  const found = [];
  while (!row.empty) {
    const element = row.read(tag);
    if (tag === TAG.oid) oidIn(new DerReader(element.whole));
    found.push(element);
  }
  return found;
}

const UTC_TIME = /^(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)?(Z|[+-]\d{4})$/;
const GENERALIZED_TIME = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(Z|[+-]\d{4})$/;

/** A UTCTime of two-digit years (1950 to 2049), or a GeneralizedTime (RFC 5280 section 4.1.2.5). As Go, it takes other zones than Z. */
export function timeIn(reader: DerReader): number {
  const { tag, value } = reader.read();
  const format = tag === TAG.utcTime ? UTC_TIME : tag === TAG.time ? GENERALIZED_TIME : undefined;
  const found = format?.exec(value.toString('latin1'));
  if (!found) throw new Error('it has a malformed date');
  const [year = 0, ...rest] = found.slice(1, 7).map((part) => Number(part ?? 0));
  const [month = 0, day = 0, hour = 0, minute = 0, second = 0] = rest;
  const zone = found[7] === 'Z' ? 0 : Number(found[7]);
  const date = new Date(0);
  date.setUTCFullYear(tag === TAG.time ? year : year + (year < 50 ? 2000 : 1900), month - 1, day);
  date.setUTCHours(hour, minute, second);
  // What overflows, such as 30 February, is no date.
  const read = [
    date.getUTCMonth() + 1,
    date.getUTCDate(),
    date.getUTCHours(),
    date.getUTCMinutes(),
    date.getUTCSeconds(),
  ];
  if (read.join() !== rest.join()) throw new Error('it has a malformed date');
  return date.getTime() - (Math.trunc(zone / 100) * 60 + (zone % 100)) * 60_000;
}
