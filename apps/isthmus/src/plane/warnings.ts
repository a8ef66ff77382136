import type { Member } from './member.ts';
import type { Plane } from './plane.ts';

/** Lines that are looked at, and of those the different ones that are shown. */
const LOOKED_AT = 50;
const SHOWN = 3;

/** What members warned of last, each thing once, by the member's id: the reason for much stands there alone. */
export async function warningsOf(plane: Plane, members: readonly Member[]): Promise<Map<string, string[]>> {
  const { answers } = await plane.askThese(members, (admin, signal) =>
    admin.recentLogs({ level: 'warn', limit: LOOKED_AT }, { signal }),
  );
  return new Map(answers.map(({ member, value }) => [member.id, lastDifferent(value.lines)]));
}

export function lastDifferent(lines: readonly string[]): string[] {
  const found = new Set<string>();
  for (const line of [...lines].reverse()) {
    const text = readable(line);
    if (text !== undefined && found.size < SHOWN) found.add(text);
  }
  return [...found].reverse();
}

/** What differs from line to line, or is told beside. */
const LEFT_OUT = ['level', 'time', 'name', 'msg', 'pid', 'hostname', 'dial', 'trace_id', 'span_id', 'ms'];

/** `message: field=value, ...`; undefined for what is no line of a log. */
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

/** Why gateways had no way to a hub when they tried last: by gateway, then by hub. */
export async function linkFailuresOf(
  plane: Plane,
  gateways: readonly Member[],
): Promise<ReadonlyMap<string, ReadonlyMap<string, string>>> {
  const { answers } = await plane.askThese(gateways, (admin, signal) =>
    admin.recentLogs({ level: 'warn' }, { signal }),
  );
  return new Map(answers.map(({ member, value }) => [member.id, failuresIn(value.lines)]));
}

function failuresIn(lines: readonly string[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const line of lines) {
    if (!line.includes('"hub cannot be reached"')) continue;
    const { hub, text } = JSON.parse(line) as { hub?: unknown; text?: unknown };
    if (typeof hub === 'string' && typeof text === 'string') found.set(hub, text);
  }
  return found;
}
