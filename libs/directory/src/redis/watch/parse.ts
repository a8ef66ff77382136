import type { Change, HubRecord, Member, Quarantine, SessionRecord } from '../../records.ts';

/** A change as it is in the stream. `opened`: a hub wrote all its sessions again, to be read from its hash. */
export type Entry = Change | { readonly kind: 'opened'; readonly hub: HubRecord };

/** Called for each record that is skipped. One bad record must not hide those behind it. */
export type Skipped = (why: string) => void;

/**
 * Longest record that is parsed, in characters. An agent's request may say 64 KiB of itself, which JSON's escapes can double. Parsing
 * takes up to 0.35 µs a character (arrays in arrays), while nothing else runs.
 */
const LONGEST_RECORD = 128 * 1024;

type Test = (value: unknown) => boolean;

const text: Test = (value) => typeof value === 'string';
const number: Test = (value) => typeof value === 'number';
const flag: Test = (value) => typeof value === 'boolean';
const texts: Test = (value) => Array.isArray(value) && value.every(text);
const optional =
  (test: Test): Test =>
  (value) =>
    value === undefined || test(value);
const shape =
  (fields: Readonly<Record<string, Test>>): Test =>
  (value) =>
    typeof value === 'object' &&
    value !== null &&
    Object.entries(fields).every(([name, test]) => test((value as Record<string, unknown>)[name]));

const HUB_NAME = { hubId: text, incarnation: number };
const HUB = shape({ ...HUB_NAME, peerAddress: text, agentAddress: text, zone: text, draining: flag });
const SESSION_NAME = { ...HUB_NAME, sessionId: text, version: number };
const IDENTIFIERS = shape({ ipv4: texts, ipv6: texts, host: texts, cidr: texts, defaultRoute: flag });
const SESSION = shape({
  ...SESSION_NAME,
  ...{ tenant: text, agentId: text, identifiers: IDENTIFIERS, draining: flag, since: number },
  ...{ instance: optional(text), credential: optional(text) },
});
const QUARANTINE = shape({ tenant: text, agentId: text, reason: optional(text), version: number });

const PLACE = { adminAddress: text, host: text, zone: text };
const MEMBER = shape({ memberId: text, roles: texts, ...PLACE, version: text, since: number });

const ENTRIES: Readonly<Record<Entry['kind'], Test>> = {
  hub: shape({ hub: HUB }),
  'hub-gone': shape(HUB_NAME),
  session: shape({ session: SESSION }),
  'session-gone': shape(SESSION_NAME),
  quarantine: shape({ quarantine: QUARANTINE }),
  opened: shape({ hub: HUB }),
};

/** Returns the content of an entry, or undefined for one to skip. Those of a kind that a newer version wrote are skipped in silence. */
export function parseEntry(json: string, skipped: Skipped): Entry | undefined {
  const kind = (value: unknown) => (value as { readonly kind?: unknown } | null)?.kind;
  const known = (value: unknown) => {
    const name = kind(value);
    return typeof name === 'string' && (!Object.hasOwn(ENTRIES, name) || ENTRIES[name as Entry['kind']](value));
  };
  const entry = parse<Entry>(json, known, skipped);
  return entry && Object.hasOwn(ENTRIES, entry.kind) ? entry : undefined;
}

export const parseHub = (json: string, skipped: Skipped) => parse<HubRecord>(json, HUB, skipped);
export const parseSession = (json: string, skipped: Skipped) => parse<SessionRecord>(json, SESSION, skipped);
export const parseMember = (json: string, skipped: Skipped) => parse<Member>(json, MEMBER, skipped);
export const parseQuarantine = (json: string, skipped: Skipped) => parse<Quarantine>(json, QUARANTINE, skipped);

function parse<T>(json: string, test: Test, skipped: Skipped): T | undefined {
  if (json.length > LONGEST_RECORD) {
    skipped(`a record of ${json.length} characters, more than ${LONGEST_RECORD}`);
    return undefined;
  }
  const value = jsonOf(json);
  if (test(value)) return value as T;
  skipped(`a malformed record: ${JSON.stringify(json.slice(0, 60))}`);
  return undefined;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
