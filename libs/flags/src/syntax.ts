import { isIP } from 'node:net';

/**
 * How Go writes values on a command line (strconv, time.ParseDuration, encoding/csv), because upstream's flags are read by Go. Each
 * reader throws a SyntaxError that describes only what is wrong with the text.
 */

const TRUE = new Set(['1', 't', 'T', 'TRUE', 'true', 'True']);
const FALSE = new Set(['0', 'f', 'F', 'FALSE', 'false', 'False']);

/** strconv.ParseBool. */
export function readBool(text: string): boolean {
  if (TRUE.has(text)) return true;
  if (FALSE.has(text)) return false;
  throw new SyntaxError('want true or false');
}

// strconv.ParseInt with base 0: 0x, 0o, 0b and a leading 0 give the base; underscores may separate digits.
const INTEGER = /^([+-]?)(?:0[xX]((?:_?[\da-fA-F])+)|0[bB]((?:_?[01])+)|0[oO]?((?:_?[0-7])+)|(0|[1-9](?:_?\d)*))$/;

/** strconv.ParseInt with base 0. Numbers that a double cannot hold exactly are out of range. */
export function readInteger(text: string): number {
  const match = INTEGER.exec(text);
  if (!match) throw new SyntaxError('want a whole number');
  const [, sign, hex, binary, octal, decimal] = match;
  const digits = (hex ?? binary ?? octal ?? decimal ?? '').replaceAll('_', '');
  const magnitude = Number.parseInt(digits, hex ? 16 : binary ? 2 : octal ? 8 : 10);
  if (!Number.isSafeInteger(magnitude)) throw new SyntaxError('the number is out of range');
  return sign === '-' && magnitude !== 0 ? -magnitude : magnitude;
}

/** strconv.ParseUint with base 0: no sign. */
export function readUnsigned(text: string): number {
  if (/^[+-]/.test(text)) throw new SyntaxError('want a whole number of 0 or more');
  return readInteger(text);
}

/** strconv.ParseInt with base 10 and 32 bits, as klog reads levels. */
export function readInt32(text: string): number {
  if (!/^[+-]?\d+$/.test(text)) throw new SyntaxError('want a whole number');
  const value = Number(text);
  if (value < -(2 ** 31) || value >= 2 ** 31) throw new SyntaxError('the number is out of range');
  return value;
}

/** strconv.ParseFloat with 32 bits, without Go's hexadecimal form. */
export function readFloat32(text: string): number {
  const special = /^([+-]?)(inf|infinity|nan)$/i.exec(text);
  if (special) return special[2]?.toLowerCase() === 'nan' ? Number.NaN : special[1] === '-' ? -Infinity : Infinity;
  if (!/^[+-]?(\d+(?:\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(text)) throw new SyntaxError('want a number');
  const value = Math.fround(Number(text));
  if (!Number.isFinite(value)) throw new SyntaxError('the number is out of range');
  return value;
}

// Both micro signs: U+00B5, which is on keyboards, and U+03BC, the Greek letter.
const UNIT_MS = { ns: 1e-6, us: 1e-3, '\u00b5s': 1e-3, '\u03bcs': 1e-3, ms: 1, s: 1e3, m: 6e4, h: 3.6e6 };
const DURATION = /^[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h))+$/;
const DURATION_PART = /(\d+(?:\.\d*)?|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)/g;
/** Go counts nanoseconds in 63 bits. */
const LONGEST_MS = 2 ** 63 / 1e6;

/** time.ParseDuration, in milliseconds: `1h30m`, `1.5s`, `100ms`, `0`. */
export function readDuration(text: string): number {
  if (/^[+-]?0$/.test(text)) return 0;
  if (/^[+-]?\.?\d[\d.]*$/.test(text)) throw new SyntaxError('the unit is missing: write 10s, 1m30s or 100ms');
  if (!DURATION.test(text)) throw new SyntaxError('want a duration such as 10s, 1m30s or 100ms');
  let ms = 0;
  for (const [, amount, unit] of text.matchAll(DURATION_PART)) {
    ms += Number(amount) * UNIT_MS[unit as keyof typeof UNIT_MS];
  }
  if (ms >= LONGEST_MS) throw new SyntaxError('the duration is out of range');
  return text.startsWith('-') && ms !== 0 ? -ms : ms;
}

/** Go's time.Duration.String, from milliseconds: `1h0m0s`, `1.5s`, `100ms`, `0s`. */
export function writeDuration(ms: number): string {
  if (ms < 0) return `-${writeDuration(-ms)}`;
  if (ms === 0) return '0s';
  if (ms < 1e-3) return `${decimal(ms * 1e6)}ns`;
  if (ms < 1) return `${decimal(ms * 1e3)}\u00b5s`;
  if (ms < 1000) return `${decimal(ms)}ms`;
  const minutes = Math.floor(ms / 60_000);
  const seconds = `${decimal((ms - minutes * 60_000) / 1000)}s`;
  if (minutes === 0) return seconds;
  const hours = Math.floor(minutes / 60);
  return `${hours > 0 ? `${hours}h` : ''}${minutes % 60}m${seconds}`;
}

/** Up to nine decimals: the nanoseconds of a second. */
function decimal(value: number): string {
  return String(Number(value.toFixed(9)));
}

/**
 * Reads one record of encoding/csv, as pflag reads lists: fields between commas, and quoted fields with doubled quotes inside. Ignores
 * everything after a line break.
 */
export function readCsv(text: string): string[] {
  const fields: string[] = [];
  for (let at = 0; ; at++) {
    const { field, end } = text[at] === '"' ? quotedField(text, at + 1) : bareField(text, at);
    fields.push(field);
    at = end;
    if (text[at] !== ',') return fields;
  }
}

function bareField(text: string, start: number): { field: string; end: number } {
  const length = text.slice(start).search(/[,\r\n]/);
  const end = length < 0 ? text.length : start + length;
  const field = text.slice(start, end);
  if (field.includes('"')) throw new SyntaxError('a quotation mark inside a field that is not quoted');
  return { field, end };
}

function quotedField(text: string, start: number): { field: string; end: number } {
  let field = '';
  for (let at = start; at < text.length; at++) {
    if (text[at] !== '"') field += text[at];
    else if (text[at + 1] === '"') field += text[at++];
    else if (at + 1 === text.length || /[,\r\n]/.test(text[at + 1] as string)) return { field, end: at + 1 };
    else throw new SyntaxError('text after the closing quotation mark of a field');
  }
  throw new SyntaxError('a closing quotation mark is missing');
}

export function writeCsv(fields: readonly string[]): string {
  return fields.map((field) => (/[",\r\n]|^\s/.test(field) ? `"${field.replaceAll('"', '""')}"` : field)).join(',');
}

/** A network: `10.0.0.0/8`. */
interface Cidr {
  readonly address: string;
  readonly bits: number;
  readonly family: 'ipv4' | 'ipv6';
}

/** @returns undefined for a text that is no network */
export function readCidr(text: string): Cidr | undefined {
  const [, address = '', bits] = /^([^/]+)\/(\d{1,3})$/.exec(text) ?? [];
  const version = isIP(address);
  if (version === 0 || Number(bits) > (version === 4 ? 32 : 128)) return undefined;
  return { address, bits: Number(bits), family: version === 4 ? 'ipv4' : 'ipv6' };
}
