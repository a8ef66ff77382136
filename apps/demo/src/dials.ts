/** A dial in a gateway's log. */
export interface SeenDial {
  /** Time of day, with milliseconds. */
  readonly time: string;
  readonly caller: string;
  readonly via: string;
  readonly destination: string;
  readonly ms: number;
  readonly agent?: string;
  readonly hub?: string;
  /** Set if it failed: the error's name (RFC 9209) and its text. */
  readonly error?: { readonly name: string; readonly text: string };
}

const MESSAGES = ['dial established', 'dial failed'];

/** Reads a line of a program's JSON log. Returns undefined unless it reports the end of a caller's dial. */
export function readDial(line: string): SeenDial | undefined {
  const fields = readObject(line);
  if (fields?.role !== 'gateway' || !MESSAGES.includes(String(fields.msg))) return undefined;
  const { time, caller, via, destination, ms, agent, hub, error, text } = fields;
  return {
    time: new Date(String(time)).toTimeString().slice(0, 8) + String(time).slice(19, 23),
    caller: String(caller),
    via: String(via),
    destination: String(destination),
    ms: Number(ms),
    ...(typeof agent === 'string' && { agent }),
    ...(typeof hub === 'string' && { hub }),
    ...(error !== undefined && { error: { name: String(error), text: String(text) } }),
  };
}

/** Formats a dial as one line: when, who (by which protocol), where to, through which agent and hub, how long or why not. */
export function dialLine(dial: SeenDial, gateway: string): string {
  const who = `${dial.time}  ${dial.caller} (${dial.via}) at ${gateway} → ${dial.destination}`;
  const through = dial.agent === undefined ? '' : ` through ${dial.agent} at ${dial.hub}`;
  const how = dial.error ? `failed after ${dial.ms} ms: ${dial.error.name}, ${dial.error.text}` : `in ${dial.ms} ms`;
  return `${who}${through} ${how}`;
}

function readObject(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}
