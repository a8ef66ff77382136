import type { AgentName } from '@isthmus/tunnel';
import { DIRECTORY } from '../defaults.ts';
import type { Change, HubRecord, Member, Quarantine, SessionRecord, Snapshot } from '../registry.ts';
import type { Client } from './connection.ts';
import type { Keys } from './options.ts';

/** A change as it is in the stream. `opened`: a hub wrote all its sessions again, to be read from its hash. */
type Entry = Change | { readonly kind: 'opened'; readonly hub: HubRecord };

/** Called for each record that is skipped. One bad record must not hide those behind it. */
type Skipped = (why: string) => void;

type Test = (value: unknown) => boolean;

const text: Test = (value) => typeof value === 'string';
/** Times, versions and counts: what is none would cost a member its whole answer to operators. */
const whole: Test = (value) => Number.isSafeInteger(value) && Number(value) >= 0;
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

const HUB_NAME = { hubId: text, incarnation: whole };
const HUB = shape({ ...HUB_NAME, peerAddress: text, agentAddress: text, zone: text, draining: flag });
const SESSION_NAME = { ...HUB_NAME, sessionId: text, version: whole };
const IDENTIFIERS = shape({ ipv4: texts, ipv6: texts, host: texts, cidr: texts, defaultRoute: flag });
const SESSION = shape({
  ...SESSION_NAME,
  ...{ tenant: text, agentId: text, identifiers: IDENTIFIERS, draining: flag, since: whole },
  ...{ instance: optional(text), credential: optional(text) },
});
const QUARANTINE = shape({ tenant: text, agentId: text, reason: optional(text), version: whole });

const PLACE = { adminAddress: text, host: text, zone: text };
const MEMBER = shape({ memberId: text, roles: texts, ...PLACE, version: text, since: whole });

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
const parseSession = (json: string, skipped: Skipped) => parse<SessionRecord>(json, SESSION, skipped);
export const parseMember = (json: string, skipped: Skipped) => parse<Member>(json, MEMBER, skipped);
const parseQuarantine = (json: string, skipped: Skipped) => parse<Quarantine>(json, QUARANTINE, skipped);

function parse<T>(json: string, test: Test, skipped: Skipped): T | undefined {
  if (json.length > DIRECTORY.recordCharacters) {
    skipped(`a record of ${json.length} characters, more than ${DIRECTORY.recordCharacters}`);
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

/** A position in the history of a plane: the epoch of the store's data (empty before the first change), and the number of changes in it. */
export interface HistoryPosition {
  readonly epoch: string;
  readonly seq: number;
}

/** A snapshot, and a position from before it was read. Changes after that position may already be in the snapshot. Their versions tell. */
interface PlacedSnapshot extends Snapshot, Pick<Look, 'position' | 'run' | 'replica'> {}

/**
 * Reads everything in pages, however long it takes. The position is that of the beginning of the read. A hub whose record has expired is
 * in it as it was last: it may be well, in a store that takes no writes. If it is gone, watchers drop it later.
 */
export async function readSnapshot(client: Client, keys: Keys, skipped: Skipped): Promise<PlacedSnapshot> {
  const { hubs: inCharge, position, run, replica } = await look(client, keys);
  const hubIds = [...inCharge.keys()];
  const records = hubIds.length === 0 ? [] : await client.mget(hubIds.map(keys.hub));
  const kept = hubIds.length === 0 ? [] : await client.hmget(keys.meta, ...hubIds.map((hubId) => `hub:${hubId}`));
  const hubs = records.flatMap((record, index) => {
    const json = record ? afterMark(record) : kept[index];
    return (json && parseHub(json, skipped)) || [];
  });
  const sessions: SessionRecord[][] = [];
  for (let start = 0; start < hubs.length; start += DIRECTORY.hubsPerRead) {
    const group = hubs.slice(start, start + DIRECTORY.hubsPerRead);
    sessions.push(...(await Promise.all(group.map(({ hubId }) => readSessions(client, keys, hubId, skipped)))));
  }
  const statements = await client.hvals(keys.quarantines);
  const quarantines = statements.flatMap((value) => parseQuarantine(value.replace(/^\d+[+-]/, ''), skipped) ?? []);
  return { hubs, sessions: sessions.flat(), quarantines, position, run, replica };
}

/** A session that opens or closes during the read may be in the result or not. The stream reports it. */
export async function readSessions(
  client: Client,
  keys: Keys,
  hubId: string,
  skipped: Skipped,
): Promise<SessionRecord[]> {
  const found = new Map<string, string>();
  let cursor = '0';
  do {
    const [next, fields] = await client.hscan(keys.sessions(hubId), cursor, 'COUNT', DIRECTORY.sessionsPerReply);
    for (let i = 0; i < fields.length; i += 2) found.set(fields[i] as string, fields[i + 1] as string);
    cursor = next;
  } while (cursor !== '0');
  return [...found.values()].flatMap((value) => parseSession(afterMark(value), skipped) ?? []);
}

/** What a watcher checks. */
interface Look {
  /** The hubs in charge, with their incarnations. */
  readonly hubs: ReadonlyMap<string, number>;
  /** The store's position in history. */
  readonly position: HistoryPosition;
  /** Identifies the run of the server that answered. */
  readonly run: string;
  /** Whether any agent is or was in quarantine. */
  readonly someQuarantined: boolean;
  /** The server's data may be old, and it accepts no writes. */
  readonly replica: boolean;
}

export async function look(client: Client, keys: Keys): Promise<Look> {
  const [charge, position, [run, role], quarantines] = await client.isthmusLook(keys.hubs, keys.meta, keys.quarantines);
  const hubs = new Map<string, number>();
  for (let i = 0; i < charge.length; i += 2) hubs.set(charge[i] as string, Number(charge[i + 1]));
  return {
    hubs,
    position: { epoch: position[0] ?? '', seq: Number(position[1] ?? 0) },
    run,
    someQuarantined: quarantines > 0,
    replica: role !== 'master',
  };
}

export function parsePosition(id: string): HistoryPosition {
  const [epoch = '', seq] = id.split('-');
  return { epoch, seq: Number(seq) };
}

export function formatPosition({ epoch, seq }: HistoryPosition): string {
  return `${epoch || '0'}-${seq}`;
}

export function afterMark(value: string): string {
  return value.slice(value.indexOf(' ') + 1);
}

type Outcome = 'ok' | 'same' | 'full';

/** Puts an agent in quarantine or, without a reason, releases it. */
export async function writeQuarantine(
  client: Client,
  keys: Keys,
  { tenant, agentId }: AgentName,
  reason: string | undefined,
): Promise<Outcome> {
  // Without the first brace, because the script puts the version in front.
  const rest = JSON.stringify({ tenant, agentId, reason }).slice(1);
  const field = fieldOf({ tenant, agentId });
  return (await client.isthmusQuarantine(...sharedOf(keys), field, signOf(reason), rest, startOf(tenant))) as Outcome;
}

/** Writes records that the store lacks. Later ones in the store stay. */
export async function restoreQuarantines(client: Client, keys: Keys, lost: readonly Quarantine[]): Promise<void> {
  for (let start = 0; start < lost.length; start += DIRECTORY.quarantinesPerWrite) {
    const each = lost.slice(start, start + DIRECTORY.quarantinesPerWrite).flatMap((quarantine) => {
      const { version, tenant, agentId, reason } = quarantine;
      return [fieldOf(quarantine), version, signOf(reason), JSON.stringify({ version, tenant, agentId, reason })];
    });
    await client.isthmusRestore(...sharedOf(keys), ...each);
  }
}

function sharedOf(keys: Keys): (string | number)[] {
  return [keys.quarantines, keys.meta, keys.changes, DIRECTORY.keptChanges, DIRECTORY.quarantined];
}

function fieldOf({ tenant, agentId }: AgentName): string {
  return JSON.stringify([tenant, agentId]);
}

/** Where the fields of a tenant's agents begin, and those of no other. */
function startOf(tenant: string): string {
  return `[${JSON.stringify(tenant)},`;
}

function signOf(reason: string | undefined): '+' | '-' {
  return reason === undefined ? '-' : '+';
}
