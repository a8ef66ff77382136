import { STATIC_TABLE } from './static-table.ts';

/** Where the static table has a name, and where it has a name with a value. */
const NAMES = new Map<string, number>();
const FIELDS = new Map<string, number>();
STATIC_TABLE.forEach(([name, value], index) => {
  if (!NAMES.has(name)) NAMES.set(name, index + 1);
  FIELDS.set(`${name}\0${value}`, index + 1);
});

/** Room for a number and its prefix, in bytes. */
const NUMBER = 5;

/**
 * A block of header fields without a compression table: literals and the static table only (RFC 7541 section 6.2.2). Heads
 * on a link are short and hardly repeat, and what is not remembered cannot get out of step.
 */
export function hpackEncode(fields: Iterable<readonly [name: string, value: string]>): Buffer {
  const list = [...fields];
  let room = 0;
  for (const [name, value] of list) room += name.length + value.length + 3 * NUMBER;
  const bytes = Buffer.allocUnsafe(room);
  let at = 0;
  for (const [name, value] of list) {
    const whole = FIELDS.get(`${name}\0${value}`);
    if (whole !== undefined) {
      at = writeNumber(bytes, at, 0x80, 7, whole);
      continue;
    }
    const known = NAMES.get(name) ?? 0;
    at = writeNumber(bytes, at, 0, 4, known);
    if (known === 0) at = writeText(bytes, at, name);
    at = writeText(bytes, at, value);
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
