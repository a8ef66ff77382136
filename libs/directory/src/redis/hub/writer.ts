import type { Change, HubRecord, SessionRecord } from '../../records.ts';
import type { Client } from '../connection/connection.ts';
import type { Keys } from '../keys.ts';
import type { SessionWrite } from './outbox.ts';

/**
 * `lost`: the store does not hold what this hub wrote before. `late`: the store already holds this mark or a higher one. Only another
 * process with the same hub and incarnation can have written it.
 */
export type WriteOutcome = 'ok' | 'superseded' | 'lost' | 'late';

/** A plane in the store, and the number of changes that its stream keeps. */
export interface Store {
  readonly keys: Keys;
  readonly keptChanges: number;
}

type HubName = Pick<HubRecord, 'hubId' | 'incarnation'>;

/** How long staged sessions live if their hub does not finish, in seconds. */
const STAGED_SECONDS = 60;

/** Number of batches in flight at once, so that a slow answer delays them together and not one after the other. */
const STAGED_TOGETHER = 10;

/** Runs the scripts for one process of a hub, and numbers its writes. */
export class HubWriter {
  readonly hubId: string;
  readonly #store: Store;
  readonly #ttlMs: number;
  #incarnation: number;
  #mark = 0;
  #acknowledged = 0;

  constructor(store: Store, name: HubName, ttlMs: number) {
    this.hubId = name.hubId;
    this.#incarnation = name.incarnation;
    this.#store = store;
    this.#ttlMs = ttlMs;
  }

  /** The incarnation of all written records. It replaces their own. */
  get incarnation(): number {
    return this.#incarnation;
  }

  /** Continues as the incarnation after the one in charge. */
  async takeOver(client: Client): Promise<void> {
    const inCharge = Number(await client.hget(this.#store.keys.hubs, this.hubId));
    this.#incarnation = Math.max(this.#incarnation, inCharge + 1);
  }

  /**
   * Renews the hub's record and writes the changes.
   * @param held number of sessions that the store must hold already
   */
  async write(
    client: Client,
    hub: HubRecord,
    hubChanged: boolean,
    held: number,
    writes: readonly SessionWrite[],
  ): Promise<WriteOutcome> {
    const mark = ++this.#mark;
    const changes = writes.flatMap(({ session, ...write }) => {
      const record = session ? this.#stamped(session) : '';
      return [write.sessionId, write.version, record, changeOf(this, write, record)];
    });
    const outcome = await client.isthmusWrite(
      ...keysOf(this.#store, this.hubId),
      ...argumentsOf(this.#store, this),
      ...[this.#acknowledged, mark, this.#ttlMs, this.#stamped(hub), hubChanged ? '1' : '0', held],
      ...changes,
    );
    return this.#acknowledge(mark, outcome as WriteOutcome);
  }

  /** Writes the hub and all its sessions, replacing everything that the store holds of it. Others see it in one step. */
  async open(client: Client, hub: HubRecord, writes: readonly SessionWrite[], batch: number): Promise<WriteOutcome> {
    const mark = ++this.#mark;
    const staged = this.#store.keys.staged(this.hubId, this.#incarnation, mark);
    const stage = (part: readonly SessionWrite[]) => {
      const field = ({ version, session }: SessionWrite) => `${version} ${session && this.#stamped(session)}`;
      const fields = part.flatMap((write) => [write.sessionId, field(write)]);
      return client.isthmusStage(staged, STAGED_SECONDS, ...fields);
    };
    for (const group of groupsOf(groupsOf(writes, batch), STAGED_TOGETHER)) await Promise.all(group.map(stage));
    const outcome = await client.isthmusOpen(
      ...keysOf(this.#store, this.hubId),
      staged,
      ...argumentsOf(this.#store, this),
      ...[mark, this.#ttlMs, this.#stamped(hub), writes.length],
    );
    return this.#acknowledge(mark, outcome as WriteOutcome);
  }

  /** Removes the hub. Does nothing if another incarnation is in charge. */
  remove(client: Client): Promise<void> {
    return remove(client, this.#store, this, false);
  }

  #stamped(record: HubRecord | SessionRecord): string {
    return JSON.stringify({ ...record, incarnation: this.#incarnation });
  }

  #acknowledge(mark: number, outcome: WriteOutcome): WriteOutcome {
    if (outcome === 'ok') this.#acknowledged = mark;
    return outcome;
  }
}

/** Removes a hub whose record expired, with its sessions. Every watcher that notices calls this; the script lets one succeed. */
export function removeExpired(client: Client, store: Store, name: HubName): Promise<void> {
  return remove(client, store, name, true);
}

async function remove(client: Client, store: Store, name: HubName, onlyExpired: boolean): Promise<void> {
  const { hubId, incarnation } = name;
  const change: Change = { kind: 'hub-gone', hubId, incarnation, ...(onlyExpired && { expired: true }) };
  const shared = [...keysOf(store, hubId), ...argumentsOf(store, name)];
  await client.isthmusRemove(...shared, JSON.stringify(change), onlyExpired ? '1' : '0');
}

function groupsOf<T>(list: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(list.length / size) }, (_, n) => list.slice(n * size, (n + 1) * size));
}

function keysOf({ keys }: Store, hubId: string): string[] {
  return [keys.hub(hubId), keys.sessions(hubId), keys.hubs, keys.meta, keys.changes];
}

function argumentsOf({ keptChanges }: Store, { hubId, incarnation }: HubName): (string | number)[] {
  return [hubId, incarnation, keptChanges];
}

/** @param record the session's record as JSON; empty if the session is gone */
function changeOf(name: HubName, { sessionId, version }: Omit<SessionWrite, 'session'>, record: string): string {
  if (record !== '') return `{"kind":"session","session":${record}}`;
  const { hubId, incarnation } = name;
  return JSON.stringify({ kind: 'session-gone', sessionId, hubId, incarnation, version } satisfies Change);
}
