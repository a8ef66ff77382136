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
