import { isPrintable } from '@isthmus/runtime';
import { type AgentIdentifiers, isNetwork } from '@isthmus/tunnel';
import { percentDecoded } from './http1.ts';

/** A peer asks for more than its limit. The message names the limit and the flag that sets it. */
export class AgentLimitError extends Error {
  override readonly name = 'AgentLimitError';
  /** Which limit, for the counter of refusals: `agent sessions`. */
  readonly where: string;

  constructor(where: string, message: string) {
    super(message);
    this.where = where;
  }
}

/**
 * Returns where a refusal is counted.
 * @param otherwise for an error that is not about a limit
 */
export function refusedWhere(error: Error, otherwise: string): string {
  const cause = error instanceof AgentLimitError ? error : error.cause;
  return cause instanceof AgentLimitError ? cause.where : otherwise;
}

/** The limits of what one session may claim to reach. */
export interface IdentifierLimits {
  readonly identifiers: number;
  readonly identifierBytes: number;
}

/** What Go's strconv.ParseBool accepts as true. */
const GO_TRUE = new Set(['1', 't', 'T', 'true', 'True', 'TRUE']);

/** What an agent claims to reach. */
export interface Reach {
  readonly identifiers: AgentIdentifiers;
  /** Names what is ignored, such as `cidr=10.0.0.0/8,192.168.0.0/16`: upstream keeps it, and never matches it. Undefined: nothing is. */
  readonly mistake: Error | undefined;
}

/**
 * Reads what an agent claims to reach: a URL query such as `ipv4=10.0.0.1&host=db.internal&default-route=true`, read as Go's
 * url.ParseQuery does. Keys of later versions are ignored. Throws AgentLimitError if it is over the limits, another Error if it is not a URL
 * query.
 */
export function parseIdentifiers(query: string, limits?: IdentifierLimits): Reach {
  if (limits) checkSize(query, limits);
  const values = parseQuery(query);
  const cidr = values.getAll('cidr');
  const identifiers = {
    ipv4: values.getAll('ipv4'),
    ipv6: values.getAll('ipv6'),
    host: values.getAll('host'),
    cidr: cidr.filter(isNetwork),
    defaultRoute: GO_TRUE.has(values.get('default-route') ?? ''),
  };
  return { identifiers, mistake: mistakeIn(cidr.filter((text) => !isNetwork(text))) };
}

function mistakeIn([first, ...more]: readonly string[]): Error | undefined {
  if (first === undefined) return undefined;
  const others = more.length > 0 ? ` (and ${more.length} more)` : '';
  const text = `the identifier ${`cidr=${first}`.slice(0, 100)}${others} is no network and is ignored`;
  return new Error(`${text}: give each network a cidr= of its own`);
}

/** Checks the limits before it is read. */
function checkSize(query: string, { identifiers, identifierBytes }: IdentifierLimits): void {
  const bytes = Buffer.byteLength(query);
  if (bytes > identifierBytes) throw tooMuch(`${bytes} bytes`, identifierBytes, 'max-agent-identifier-bytes');
  let count = 1;
  for (let at = query.indexOf('&'); at >= 0; at = query.indexOf('&', at + 1)) count++;
  if (count > identifiers) throw tooMuch(`${count} identifiers`, identifiers, 'max-agent-identifiers');
}

function tooMuch(what: string, most: number, flag: string): AgentLimitError {
  return new AgentLimitError('agent identifiers', `${what} in the agent's identifiers, more than ${most}: --${flag}`);
}

function parseQuery(query: string): URLSearchParams {
  if (query.includes(';')) throw malformed('invalid semicolon separator in query');
  const bad = /%(?![0-9A-Fa-f]{2})[^&=]{0,2}/.exec(query);
  if (bad) throw malformed(`invalid URL escape ${JSON.stringify(bad[0])}`);
  if (percentDecoded(query) === undefined) throw malformed('escaped bytes are no UTF-8');
  // A ? at the beginning is part of the first key, as in Go.
  const values = new URLSearchParams(`&${query}`);
  for (const value of values.values()) if (!isPrintable(value)) throw malformed('identifiers with control characters');
  return values;
}

/** Upstream's words. */
function malformed(why: string): Error {
  return new Error(`fail to parse url encoded string: ${why}`);
}
