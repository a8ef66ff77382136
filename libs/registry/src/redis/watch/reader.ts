import type { Change, HubRecord, SessionRecord, Snapshot } from '@isthmus/tunnel';
import type { Client } from '../connection/connection.ts';
import type { Keys } from '../keys.ts';
import { readQuarantines } from '../quarantine/quarantine.ts';

/** A position in the history of a plane: the epoch of the store's data (empty before the first change), and the number of changes in it. */
export interface Position {
  readonly epoch: string;
  readonly seq: number;
}

/** A change as it is in the stream. `opened`: a hub wrote all its sessions again, to be read from its hash. */
export type Entry = Change | { readonly kind: 'opened'; readonly hub: HubRecord };

/** A snapshot, and a position from before it was read. Changes after that position may already be in the snapshot. Their versions tell. */
export interface PlacedSnapshot extends Snapshot, Pick<Look, 'position' | 'run'> {}

/** Sessions per reply, about 350 bytes each. Keeps every reply short, however many sessions there are. */
const SESSIONS_PER_REPLY = 1_000;

/** Number of hubs read at once. */
const HUBS_TOGETHER = 8;

/** Reads everything in pages, however long it takes. The position is that of the beginning of the read. */
export async function readSnapshot(client: Client, keys: Keys): Promise<PlacedSnapshot> {
  const { hubs: inCharge, position, run } = await look(client, keys);
  const hubIds = [...inCharge.keys()];
  const records = hubIds.length === 0 ? [] : await client.mget(hubIds.map(keys.hub));
  const hubs = records.filter((record) => record !== null).map(afterMark<HubRecord>);
  const sessions: SessionRecord[][] = [];
  for (let start = 0; start < hubs.length; start += HUBS_TOGETHER) {
    const group = hubs.slice(start, start + HUBS_TOGETHER);
    sessions.push(...(await Promise.all(group.map(({ hubId }) => readSessions(client, keys, hubId)))));
  }
  const quarantines = await readQuarantines(client, { keys });
  return { hubs, sessions: sessions.flat(), quarantines, position, run };
}

/** A session that opens or closes during the read may be in the result or not. The stream reports it. */
export async function readSessions(client: Client, keys: Keys, hubId: string): Promise<SessionRecord[]> {
  const found = new Map<string, string>();
  let cursor = '0';
  do {
    const [next, fields] = await client.hscan(keys.sessions(hubId), cursor, 'COUNT', SESSIONS_PER_REPLY);
    for (let i = 0; i < fields.length; i += 2) found.set(fields[i] as string, fields[i + 1] as string);
    cursor = next;
  } while (cursor !== '0');
  return [...found.values()].map(afterMark<SessionRecord>);
}

/** What a watcher checks. */
export interface Look {
  /** The hubs in charge, with their incarnations. */
  readonly hubs: ReadonlyMap<string, number>;
  /** The store's position in history. */
  readonly position: Position;
  /** Identifies the run of the server that answered. */
  readonly run: string;
}

/** @throws if the server is a replica: its data may be old, and it accepts no writes. */
export async function look(client: Client, keys: Keys): Promise<Look> {
  const [charge, position, [run, role]] = await client.isthmusLook(keys.hubs, keys.meta);
  if (role !== 'master') throw new Error('READONLY this server is a replica');
  const hubs = new Map<string, number>();
  for (let i = 0; i < charge.length; i += 2) hubs.set(charge[i] as string, Number(charge[i + 1]));
  return { hubs, position: toPosition(position), run };
}

const KINDS: readonly Entry['kind'][] = ['hub', 'hub-gone', 'session', 'session-gone', 'quarantine', 'opened'];

/** Returns the content of an XREAD entry, or undefined for a kind that a newer version of this program wrote. */
export function parseEntry(fields: readonly string[]): Entry | undefined {
  const entry = JSON.parse(fields[1] ?? '') as Entry;
  return KINDS.includes(entry.kind) ? entry : undefined;
}

export function parsePosition(id: string): Position {
  const [epoch = '', seq] = id.split('-');
  return { epoch, seq: Number(seq) };
}

export function formatPosition({ epoch, seq }: Position): string {
  return `${epoch || '0'}-${seq}`;
}

function toPosition([epoch, seq]: readonly (string | null)[]): Position {
  return { epoch: epoch ?? '', seq: Number(seq ?? 0) };
}

function afterMark<T>(value: string): T {
  return JSON.parse(value.slice(value.indexOf(' ') + 1)) as T;
}
