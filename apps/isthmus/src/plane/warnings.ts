import { age } from '../output/units.ts';
import type { Member } from './member.ts';
import type { Plane } from './plane.ts';

/** Number of log lines to read, and number of different ones to show. */
const LOOKED_AT = 50;
const SHOWN_WARNINGS = 3;

/** Returns the last different warnings by member id. The reason for a problem is often only there. */
export async function warningsOf(plane: Plane, members: readonly Member[]): Promise<Map<string, string[]>> {
  const { answers } = await plane.askThese(members, (admin, signal) =>
    admin.recentLogs({ level: 'warn', limit: LOOKED_AT }, { signal }),
  );
  return new Map(answers.map(({ member, value }) => [member.id, lastDifferent(value.lines, Date.now())]));
}

/** Returns the last different lines, each with its age. */
export function lastDifferent(lines: readonly string[], now: number): string[] {
  const found = new Map<string, string>();
  for (const line of [...lines].reverse()) {
    const text = readable(line);
    if (text !== undefined && found.size < SHOWN_WARNINGS && !found.has(text)) found.set(text, aged(text, line, now));
  }
  return [...found.values()].reverse();
}

/** Adds how long ago a log line was written: a reason from yesterday explains nothing today. */
function aged(text: string, line: string, now: number): string {
  const at = timeOf(line);
  return Number.isNaN(at) ? text : `${text} (${age(Math.max(0, now - at))} ago)`;
}

function timeOf(line: string): number {
  const { time } = JSON.parse(line) as { time?: unknown };
  return typeof time === 'number' ? time : Date.parse(String(time));
}

/** Fields that differ from line to line, or are shown elsewhere. */
const LEFT_OUT = ['level', 'time', 'name', 'msg', 'pid', 'hostname', 'dial', 'trace_id', 'span_id', 'ms'];

/** Formats a log line as `message: field=value, ...`. Returns undefined if it is no log line. */
function readable(line: string): string | undefined {
  try {
    const fields = JSON.parse(line) as Record<string, unknown>;
    const told = Object.entries(fields)
      .filter(([name]) => !LEFT_OUT.includes(name))
      .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`);
    const message = String(fields.msg ?? '');
    return told.length > 0 ? `${message}: ${told.join(', ')}` : message;
  } catch {
    return undefined;
  }
}

/** Returns why gateways could not reach a hub at their last attempt, by gateway, then by hub. */
export async function linkFailuresOf(
  plane: Plane,
  gateways: readonly Member[],
): Promise<ReadonlyMap<string, ReadonlyMap<string, string>>> {
  const { answers } = await plane.askThese(gateways, (admin, signal) =>
    admin.recentLogs({ level: 'warn' }, { signal }),
  );
  return new Map(answers.map(({ member, value }) => [member.id, failuresIn(value.lines, Date.now())]));
}

export function failuresIn(lines: readonly string[], now: number): Map<string, string> {
  const found = new Map<string, string>();
  for (const line of lines) {
    if (!line.includes('"hub cannot be reached"')) continue;
    const { hub, text } = JSON.parse(line) as { hub?: unknown; text?: unknown };
    if (typeof hub === 'string' && typeof text === 'string') found.set(hub, aged(text, line, now));
  }
  return found;
}
