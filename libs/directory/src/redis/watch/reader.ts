import type { SessionRecord, Snapshot } from '../../records.ts';
import type { Client } from '../connection/connection.ts';
import type { Keys } from '../keys.ts';
import { parseHub, parseQuarantine, parseSession, type Skipped } from './parse.ts';

/** A position in the history of a plane: the epoch of the store's data (empty before the first change), and the number of changes in it. */
export interface Position {
  readonly epoch: string;
  readonly seq: number;
}

/** A snapshot, and a position from before it was read. Changes after that position may already be in the snapshot. Their versions tell. */
export interface PlacedSnapshot extends Snapshot, Pick<Look, 'position' | 'run'> {}

/** Sessions per reply, about 350 bytes each. Keeps every reply short, however many sessions there are. */
const SESSIONS_PER_REPLY = 1_000;

/** Number of hubs read at once. */
const HUBS_TOGETHER = 8;

/** Reads everything in pages, however long it takes. The position is that of the beginning of the read. */
export async function readSnapshot(client: Client, keys: Keys, skipped: Skipped): Promise<PlacedSnapshot> {
  const { hubs: inCharge, position, run } = await look(client, keys);
  const hubIds = [...inCharge.keys()];
  const records = hubIds.length === 0 ? [] : await client.mget(hubIds.map(keys.hub));
  const hubs = records.flatMap((record) => (record && parseHub(afterMark(record), skipped)) || []);
  const sessions: SessionRecord[][] = [];
  for (let start = 0; start < hubs.length; start += HUBS_TOGETHER) {
    const group = hubs.slice(start, start + HUBS_TOGETHER);
    sessions.push(...(await Promise.all(group.map(({ hubId }) => readSessions(client, keys, hubId, skipped)))));
  }
  const statements = await client.hvals(keys.quarantines);
  const quarantines = statements.flatMap((value) => parseQuarantine(value.replace(/^\d+[+-]/, ''), skipped) ?? []);
  return { hubs, sessions: sessions.flat(), quarantines, position, run };
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
    const [next, fields] = await client.hscan(keys.sessions(hubId), cursor, 'COUNT', SESSIONS_PER_REPLY);
    for (let i = 0; i < fields.length; i += 2) found.set(fields[i] as string, fields[i + 1] as string);
    cursor = next;
  } while (cursor !== '0');
  return [...found.values()].flatMap((value) => parseSession(afterMark(value), skipped) ?? []);
}

/** What a watcher checks. */
export interface Look {
  /** The hubs in charge, with their incarnations. */
  readonly hubs: ReadonlyMap<string, number>;
  /** The store's position in history. */
  readonly position: Position;
  /** Identifies the run of the server that answered. */
  readonly run: string;
  /** Whether any agent is or was in quarantine. */
  readonly quarantines: boolean;
}

/** @throws if the server is a replica: its data may be old, and it accepts no writes. */
export async function look(client: Client, keys: Keys): Promise<Look> {
  const [charge, position, [run, role], quarantines] = await client.isthmusLook(keys.hubs, keys.meta, keys.quarantines);
  if (role !== 'master') throw new Error('READONLY this server is a replica');
  const hubs = new Map<string, number>();
  for (let i = 0; i < charge.length; i += 2) hubs.set(charge[i] as string, Number(charge[i + 1]));
  return { hubs, position: toPosition(position), run, quarantines: quarantines > 0 };
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

function afterMark(value: string): string {
  return value.slice(value.indexOf(' ') + 1);
}
