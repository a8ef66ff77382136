import process from 'node:process';
import { isPrintable, printableJson, Ring } from '@isthmus/runtime';
import { HTTP_CREDENTIAL } from '@isthmus/tunnel';
import { type DestinationStream, type Logger, pino } from 'pino';
import { TELEMETRY } from '../defaults.ts';
import { LineSink, withoutWaiting } from './line-sink.ts';

export type { Logger } from 'pino';

/** Returns a line as it is kept: of a long one the fields that identify it, and its length. */
function keptLine(line: string): string {
  if (line.length <= TELEMETRY.recentLineCharacters) return line.trimEnd();
  const { level, time, name, msg } = JSON.parse(line) as Record<string, unknown>;
  return JSON.stringify({
    level,
    time,
    name,
    msg: String(msg).slice(0, TELEMETRY.recentLineCharacters / 2),
    characters: line.length,
  });
}

const STDERR = 2;

const REDACTED = '[redacted]';

const URL_PASSWORD = /(:\/\/[^\s/@:"']*):[^\s"']*@/g;

const QUERY_PASSWORD = /([?&][\w-]*password=)[^&\s"']*/gi;

// A JSON field whose name says that its value is a secret. `tokenPath` or `keyFile` do not say so.
const SECRET_FIELD =
  /("(?:key|[^"]*(?:token|authorization|password|secret|cookie|private[_-]?key|api[_-]?key))":)"(?:[^"\\]|\\.)*"/gi;

// Secrets inside a text. The text may be part of a JSON line, so a match never crosses a quote, and a line of the text may start after
// a backslash and an n.
const SECRETS: readonly [RegExp, string | ((found: string) => string)][] = [
  [QUERY_PASSWORD, `$1${REDACTED}`],
  [HTTP_CREDENTIAL, `$1 ${REDACTED}`],
  // A JSON web token, such as a service account's, without the word Bearer before it. What only begins as one is passed over as a whole.
  [/eyJ[\w-]+(?:\.[\w-]+\.[\w-]*)?/g, (found) => (found.includes('.') ? REDACTED : found)],
  // Without its end, up to the end of the text.
  [/-----BEGIN ([A-Z ]*PRIVATE KEY)-----[^"]*?(?:-----END \1-----|(?=")|$)/g, REDACTED],
];

/** Whatever is taken out below contains this. It replaces seven tests of a line by one, and hardly any line matches. */
const SUSPECT =
  /:\/\/|password=|(?:key|token|authorization|password|secret|cookie)":"|(?:bearer|basic)\s|eyj|-----begin/i;

/** Searches each word once, and no further than its last @: from each :// on, a search for it would cost the square of a peer's text. */
function withoutPasswords(text: string): string {
  return text.replace(/[^\s"']+/g, (word) => {
    const end = word.lastIndexOf('@') + 1;
    return word.slice(0, end).replace(URL_PASSWORD, `$1:${REDACTED}@`) + word.slice(end);
  });
}

/** Removes the password from a URL: `redis://user:[redacted]@host`. Also accepts lists of URLs, and text that is not a URL. */
export function redactUrl(url: string): string {
  return withoutPasswords(url).replace(QUERY_PASSWORD, `$1${REDACTED}`);
}

/** Removes secrets from a JSON line: values of fields that are named like a secret, and anything that looks like one. */
export function redactLine(line: string): string {
  if (!SUSPECT.test(line)) return line;
  const clean = line.replace(SECRET_FIELD, `$1"${REDACTED}"`);
  return SECRETS.reduce((text, [pattern, by]) => text.replace(pattern, by as string), withoutPasswords(clean));
}

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

const WORD = /^[^\s"=]+$/u;

/**
 * Formats a line of pino's JSON as text: `2026-11-21T10:00:00.000Z info  gateway  dial established destination=10.0.0.1:443 ms=3.2`.
 *
 * What cannot be printed is escaped, so that a peer's text cannot start a line of its own, turn its direction or move a terminal's cursor. A
 * line of level `error` or `fatal` is followed by the stack of its `err`.
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
  if (typeof value === 'string' && WORD.test(value) && isPrintable(value)) return value;
  if (isError(value)) return shown(value.message);
  return plain(JSON.stringify(value));
}

function plain(text: string): string {
  return printableJson(text).replaceAll('\n', '\\u000a');
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

/** A program's own log. An operator can read its last lines and change its level at run time. */
export interface ProgramLogger extends Logger {
  /** The last lines, as JSON without secrets, oldest first. */
  readonly recent: Ring<string>;
  readonly levelOf: typeof levelOf;
}

export interface LoggerOptions {
  /** The name of the program or part. */
  readonly name: string;
  readonly format: 'text' | 'json';
  /** klog's `-v`. */
  readonly verbosity: number;
  /** Default: the process's standard error, as with klog. */
  readonly destination?: LogDestination;
}

interface LogDestination extends DestinationStream {
  /** Writes lines that were accepted but not yet written. */
  flush?(): void;
}

/**
 * Returns the level for klog's `-v`: 0 and 1 show what an operator should look at (`warn`), 2 to 4 also each dial and session
 * (`info`; upstream's default is 4), 5 to 7 also what each part does (`debug`), 8 and more everything (`trace`).
 */
export function levelOf(verbosity: number): 'warn' | 'info' | 'debug' | 'trace' {
  if (verbosity < 2) return 'warn';
  if (verbosity < 5) return 'info';
  return verbosity < 8 ? 'debug' : 'trace';
}

/** Creates a pino logger that removes secrets. Text is formatted in this thread, because a pino transport needs a file of its own. */
export function createLogger({ name, format, verbosity, destination }: LoggerOptions): ProgramLogger {
  const target: LogDestination =
    destination ?? standardError((lines, reason) => logger.warn({ lines, reason }, 'log lines were lost'));
  const recent = new Ring<string>(TELEMETRY.recentLines);
  const sink = {
    write(line: string) {
      const clean = printableJson(redactLine(line));
      recent.push(keptLine(clean));
      target.write(format === 'text' ? textLine(clean) : clean);
    },
    /** Called by pino after a line of level `fatal`, as the process may end within this event loop tick. */
    flushSync: () => target.flush?.(),
  };
  const logger = pino(
    {
      name,
      base: { name },
      level: levelOf(verbosity),
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (level) => ({ level }) },
    },
    sink,
  );
  return Object.assign(logger, { recent, levelOf });
}

/** A sink that cannot write can say nothing itself: what it lost is said once it works again. */
function standardError(lost: (lines: number, reason: string) => void): LineSink {
  const report = { works: (lines: number, reason: string) => void (lines > 0 && lost(lines, reason)) };
  const sink = new LineSink(withoutWaiting(STDERR), TELEMETRY.logQueueBytes, report);
  process.on('exit', () => sink.exit());
  return sink;
}
