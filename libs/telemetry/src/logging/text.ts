/** A record as pino writes it. */
interface LogRecord {
  readonly time: string;
  readonly level: string;
  readonly name?: string;
  readonly msg?: string;
  readonly [field: string]: unknown;
}

/** Fields that come first in a line, in a fixed order. */
const HEAD: ReadonlySet<string> = new Set(['time', 'level', 'name', 'msg']);

/** An object of JSON whose text needs no escapes: printable ASCII without a backslash. */
const PLAIN_LINE = /^\{[ -[\]-~]*\}\n?$/;
const [QUOTE, BRACE, BRACKET] = [0x22, 0x7b, 0x5b];

const WORD = /^[^\s"=\p{Cc}]+$/u;

// Nearly all values match these, which need no Unicode tables.
const ASCII_WORD = /^[!#-<>-~]+$/;
const ASCII_TEXT = /^[ -~]*$/;

/**
 * Formats a line of pino's JSON as text: `2026-11-21T10:00:00.000Z info  gateway  dial established destination=10.0.0.1:443 ms=3.2`.
 *
 * Control characters are escaped, so that a peer's text cannot start a line of its own or move a terminal's cursor. A line of level
 * `error` or `fatal` is followed by the stack of its `err`.
 */
export function textLine(json: string): string {
  return PLAIN_LINE.test(json) ? (flatLine(json) ?? parsedLine(json)) : parsedLine(json);
}

/**
 * Formats a line of plain text whose values are not nested, as nearly all lines are. To parse one takes half as long again: that makes an
 * object with a shape of its own, and each field is then looked up by name. Returns undefined for other lines.
 */
function flatLine(json: string): string | undefined {
  let [time, level, name, msg, fields] = ['', '', '', '', ''];
  let at = 1;
  while (json.charCodeAt(at) === QUOTE) {
    const keyEnd = json.indexOf('"', at + 1);
    const key = json.slice(at + 1, keyEnd);
    const from = keyEnd + 2;
    const quoted = json.charCodeAt(from) === QUOTE;
    const to = quoted ? json.indexOf('"', from + 1) + 1 : endOfBare(json, from);
    if (to === from) return undefined;
    const value = quoted ? json.slice(from + 1, to - 1) : json.slice(from, to);
    if (key === 'time') time = value;
    else if (key === 'level') level = value;
    else if (key === 'name') name = value;
    else if (key === 'msg') msg = value;
    else fields += ` ${key}=${!quoted || ASCII_WORD.test(value) ? value : `"${value}"`}`;
    at = to + 1;
  }
  return `${time} ${level.padEnd(5)} ${name ? `${name}  ` : ''}${msg}${fields}\n`;
}

/** Returns where a number or a literal ends: its start if something else begins there. */
function endOfBare(json: string, from: number): number {
  const first = json.charCodeAt(from);
  if (first === BRACE || first === BRACKET) return from;
  const comma = json.indexOf(',', from);
  return comma < 0 ? json.lastIndexOf('}') : comma;
}

function parsedLine(json: string): string {
  const record = JSON.parse(json) as LogRecord;
  const { time, level, name, msg, err } = record;
  let text = `${time} ${level.padEnd(5)} ${name ? `${name}  ` : ''}${plain(msg ?? '')}`;
  for (const key in record) if (!HEAD.has(key)) text += ` ${key}=${shown(record[key])}`;
  return `${text}\n${level === 'error' || level === 'fatal' ? stackOf(err) : ''}`;
}

/** Returns a one-word value unchanged, and any other value as JSON. */
function shown(value: unknown): string {
  if (typeof value === 'number') return String(value);
  if (typeof value === 'string' && (ASCII_WORD.test(value) || WORD.test(value))) return value;
  if (isError(value)) return shown(value.message);
  return plain(JSON.stringify(value));
}

function plain(text: string): string {
  if (ASCII_TEXT.test(text)) return text;
  return text.replace(/[\p{Cc}\u2028\u2029]/gu, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

function stackOf(err: unknown): string {
  if (!isError(err) || typeof err.stack !== 'string') return '';
  return err.stack
    .split('\n')
    .slice(1)
    .map((line) => `  ${plain(line)}\n`)
    .join('');
}

/** Whether this is an Error as pino serializes it. */
function isError(value: unknown): value is { message: string; stack?: unknown } {
  return typeof value === 'object' && value !== null && 'message' in value && typeof value.message === 'string';
}
