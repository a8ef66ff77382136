import type { Change, HubRecord, SessionRecord, Snapshot } from '@isthmus/tunnel';
import type { Client } from './connection.ts';
import type { Keys } from './keys.ts';

/** How far in the history of a plane: the life of the store's data (empty before the first change), and the count of changes in it. */
export interface Position {
  readonly epoch: string;
  readonly seq: number;
}

/** A change as it stands in the stream. `opened`: a hub wrote all its sessions anew, to be read from its hash. */
export type Entry = Change | { readonly kind: 'opened'; readonly hub: HubRecord };

/** A snapshot, and the last change that is in it. */
export interface PlacedSnapshot extends Snapshot {
  readonly position: Position;
}

/** A hub that appears between the two steps of a read makes it start over. */
const SNAPSHOT_TRIES = 5;

/** Reads everything in one transaction, so that position and content agree. */
export async function readSnapshot(client: Client, keys: Keys): Promise<PlacedSnapshot> {
  for (let tries = 0; tries < SNAPSHOT_TRIES; tries++) {
    const expected = await client.hkeys(keys.hubs);
    const transaction = client.multi().hmget(keys.meta, 'epoch', 'seq').hkeys(keys.hubs);
    for (const hubId of expected) transaction.get(keys.hub(hubId)).hgetall(keys.sessions(hubId));
    const [position, present, ...contents] = await results(transaction.exec());
    if (!(present as string[]).every((hubId) => expected.includes(hubId))) continue;
    return { position: toPosition(position as (string | null)[]), ...toSnapshot(contents) };
  }
  throw new Error('hubs come and go too fast for a snapshot');
}

export async function readSessions(client: Client, keys: Keys, hubId: string): Promise<SessionRecord[]> {
  return Object.values(await client.hgetall(keys.sessions(hubId))).map(afterMark<SessionRecord>);
}

/** What a watcher looks after. */
export interface Look {
  /** The hubs in charge, with their incarnations. */
  readonly hubs: ReadonlyMap<string, number>;
  /** How far history is. */
  readonly position: Position;
  /** Names the run of the server that answered. */
  readonly run: string;
}

/** @throws for a server that only copies another: what it holds may be old, and nobody can write to it. */
export async function look(client: Client, keys: Keys): Promise<Look> {
  const [charge, position, [run, role]] = await client.isthmusLook(keys.hubs, keys.meta);
  if (role !== 'master') throw new Error('READONLY this server is a replica');
  const hubs = new Map<string, number>();
  for (let i = 0; i < charge.length; i += 2) hubs.set(charge[i] as string, Number(charge[i + 1]));
  return { hubs, position: toPosition(position), run };
}

/** What an XREAD entry says; unset for a kind that a newer version of this program wrote. */
export function parseEntry(fields: readonly string[]): Entry | undefined {
  const entry = JSON.parse(fields[1] ?? '') as Entry;
  return ['hub', 'hub-gone', 'session', 'session-gone', 'opened'].includes(entry.kind) ? entry : undefined;
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

/** `contents`: by turns a hub's record, null where it expired, and its sessions. */
function toSnapshot(contents: readonly unknown[]): Snapshot {
  const hubs: HubRecord[] = [];
  const sessions: SessionRecord[] = [];
  for (let i = 0; i < contents.length; i += 2) {
    const record = contents[i] as string | null;
    if (record === null) continue;
    hubs.push(afterMark<HubRecord>(record));
    sessions.push(...Object.values(contents[i + 1] as Record<string, string>).map(afterMark<SessionRecord>));
  }
  return { hubs, sessions };
}

function afterMark<T>(value: string): T {
  return JSON.parse(value.slice(value.indexOf(' ') + 1)) as T;
}

async function results(replies: Promise<[Error | null, unknown][] | null>): Promise<unknown[]> {
  return ((await replies) ?? []).map(([error, result]) => {
    if (error) throw error;
    return result;
  });
}
