import type { PingInterval } from '@isthmus/wire';
import { LinkRefused } from './link-refused.ts';

/** So many links to agents have the same interval. The next ones have a second more. */
const LINKS_PER_STEP = 500;

/** In seconds. An agent then notices within 12.5 s that its hub hangs. */
const LONGEST_AT_REST = 5;

/**
 * Returns the interval for an agent that asks for none; undefined for the usual one. A PING and its answer take 0.05 ms of processor time at
 * each end: 5,000 links with a PING in 1.25 s would take a fifth of a processor.
 * @param links how many links to agents the hub has
 */
export function pingAtRest(links: number): PingInterval | undefined {
  const seconds = Math.min(LONGEST_AT_REST, 1 + Math.floor(links / LINKS_PER_STEP));
  return seconds > 1 ? { seconds, atRest: true } : undefined;
}

/** The longest silence that an agent may ask for, in seconds. A hub notices only after such a silence that the agent is gone. */
const MAX_PING_SECONDS = 300;

/** The field of an agent's request, and of an answer that keeps to it. */
const FIELD = 'isthmus-ping';

/** The field of an answer to an agent that wants no interval. Agents of earlier versions know only the other, and would keep to it always. */
const AT_REST_FIELD = 'isthmus-ping-at-rest';

/** Returns the line of an answer's head. */
export function pingField({ seconds, atRest }: PingInterval): string {
  return `${atRest ? AT_REST_FIELD : FIELD}: ${seconds}`;
}

/** Reads an answer. Hubs of earlier versions answer only what the agent wants, or nothing. Throws LinkRefused with this status. */
export function pingOf(fields: ReadonlyMap<string, string>, status: number): PingInterval | undefined {
  const seconds = secondsOf(fields.get(FIELD), FIELD, status);
  if (seconds !== undefined) return { seconds, atRest: false };
  const resting = secondsOf(fields.get(AT_REST_FIELD), AT_REST_FIELD, status);
  return resting === undefined ? undefined : { seconds: resting, atRest: true };
}

/** Reads the field of a request, in seconds. Throws LinkRefused with this status. */
export function wantedPing(text: string, status: number): number | undefined {
  return secondsOf(text, FIELD, status);
}

/** Throws LinkRefused with this status for anything but whole seconds in range. */
function secondsOf(text: string | undefined, name: string, status: number): number | undefined {
  if (text === undefined || text === '') return undefined;
  const seconds = Number(text);
  if (/^\d{1,3}$/.test(text) && seconds >= 1 && seconds <= MAX_PING_SECONDS) return seconds;
  throw new LinkRefused(
    status,
    `${name} is ${JSON.stringify(text.slice(0, 20))}: want 1 to ${MAX_PING_SECONDS} seconds`,
  );
}
