import { ADMIN } from '../defaults.ts';
import { type Call, invalid } from './messages.ts';

/** pino's levels, lowest first. */
const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const;
export type LogLevel = (typeof LEVELS)[number];

/** The log of a running program. */
export interface LogPart {
  /** Logs what an operator did. */
  info(fields: object, message: string): void;
  level: string;
  /** Returns the level for klog's verbosity. */
  levelOf(verbosity: number): LogLevel;
  /** The last lines, oldest first, as JSON without secrets, and the number of older lines already dropped. */
  readonly recent: Iterable<string> & { readonly forgotten: number };
}

interface Reverting {
  /** The level to restore. */
  readonly level: string;
  readonly until: number;
  /** Does not keep the process alive. */
  readonly timer: NodeJS.Timeout;
}

/** Temporary levels that are in force, by their log: what one visitor has set, another may end. */
const temporary = new WeakMap<LogPart, Reverting>();

export const setLogLevel: Call<'setLogLevel'> = async ({ log }, { level, durationMs }) => {
  const previous = log.level;
  if (!(durationMs >= 0 && durationMs <= ADMIN.logMs)) {
    throw invalid(`duration_ms is ${durationMs}: want 0 to ${ADMIN.logMs} (a day)`);
  }
  if (level !== '') set(log, levelFrom(level, log), durationMs);
  else if (durationMs > 0) throw invalid('duration_ms is set without level: set the level for that time too');
  const reverting = temporary.get(log);
  const untilMs = reverting && Math.round(reverting.until);
  return { level: log.level, previous, untilMs, revertsTo: reverting?.level ?? '' };
};

function set(log: LogPart, level: LogLevel, durationMs: number): void {
  const reverting = temporary.get(log);
  const before = reverting?.level ?? log.level;
  clearTimeout(reverting?.timer);
  temporary.delete(log);
  const fields = { from: log.level, to: level, ...(durationMs > 0 && { durationMs }) };
  const quieter = rankOf(level) > rankOf(log.level);
  // Log it while the old level still lets it through.
  if (quieter) log.info(fields, 'operator set the log level');
  log.level = level;
  if (!quieter) log.info(fields, 'operator set the log level');
  if (durationMs === 0) return;
  const timer = setTimeout(() => revert(log, before), durationMs).unref();
  temporary.set(log, { level: before, until: Date.now() + durationMs, timer });
}

function revert(log: LogPart, level: string): void {
  temporary.delete(log);
  log.level = level;
  log.info({ to: level }, 'log level is back to what it was');
}

export const getMetrics: Call<'getMetrics'> = async ({ metrics }) => {
  return { text: String((await metrics()).body) };
};

export const recentLogs: Call<'recentLogs'> = async ({ log }, { limit, level }) => {
  const least = level === '' ? 0 : rankOf(levelNamed(level));
  const lines = [...log.recent].filter((line) => least === 0 || levelOfLine(line) >= least);
  return { lines: limit === 0 ? lines : lines.slice(-limit), forgotten: log.recent.forgotten };
};

/** @param text a name, or klog's verbosity */
function levelFrom(text: string, log: LogPart): LogLevel {
  return /^\d{1,3}$/.test(text) ? log.levelOf(Number(text)) : levelNamed(text);
}

function levelNamed(text: string): LogLevel {
  const level = LEVELS.find((name) => name === text.toLowerCase());
  if (level) return level;
  throw invalid(
    `unknown level ${JSON.stringify(text.slice(0, 50))}: want one of ${LEVELS.join(', ')}, or a number as in -v`,
  );
}

function rankOf(level: string): number {
  return (LEVELS as readonly string[]).indexOf(level);
}

/** Returns the rank of a line's level. A JSON line without a level always passes the filter. */
function levelOfLine(line: string): number {
  const rank = rankOf(/"level":"(\w+)"/.exec(line)?.[1] ?? '');
  return rank < 0 ? LEVELS.length : rank;
}
