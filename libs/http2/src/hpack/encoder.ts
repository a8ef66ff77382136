import { STATIC_TABLE } from './static-table.ts';

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

/**
 * A block of header fields without a compression table: literals and the static table only (RFC 7541 section 6.2.2). Heads
 * on a link are short and hardly repeat, and what is not remembered cannot get out of step.
 */
export function hpackEncode(fields: readonly (readonly [name: string, value: string])[]): Buffer {
  let room = 0;
  for (const [name, value] of fields) room += name.length + value.length + 3 * NUMBER_BYTES;
  const bytes = Buffer.allocUnsafe(room);
  let at = 0;
  for (const [name, value] of fields) {
    const known = NAMES.get(name);
    const whole = known?.values.get(value);
    if (whole !== undefined) {
      at = writeNumber(bytes, at, 0x80, 7, whole);
      continue;
    }
    at = writeNumber(bytes, at, 0, 4, known?.index ?? 0);
    if (!known) at = writeText(bytes, at, name);
    at = writeText(bytes, at, value);
  }
  return bytes.subarray(0, at);
}

function writeText(bytes: Buffer, at: number, text: string): number {
  const start = writeNumber(bytes, at, 0, 7, text.length);
  if (text.length > SHORT_TEXT) return start + bytes.write(text, start, 'latin1');
  for (let index = 0; index < text.length; index++) bytes[start + index] = text.charCodeAt(index);
  return start + text.length;
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
