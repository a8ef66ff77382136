import type { Change, HubRecord } from '@isthmus/tunnel';
import type { SessionWrite } from '../outbox.ts';
import type { Client } from './connection.ts';
import type { Keys } from './keys.ts';

/**
 * `lost`: the store does not hold what this hub wrote before. `late`: a write with a higher mark is there already, which
 * only another process that claims the same hub and incarnation can have done.
 */
export type WriteOutcome = 'ok' | 'superseded' | 'lost' | 'late';

/** A plane in the store, and how many of its changes the stream keeps. */
export interface Store {
  readonly keys: Keys;
  readonly keptChanges: number;
}

type HubName = Pick<HubRecord, 'hubId' | 'incarnation'>;

/** How long staged sessions live when their hub does not finish, in seconds. */
const STAGED_SECONDS = 60;

/** Speaks the scripts for one incarnation of a hub, and counts its writes. */
export class HubWriter {
  readonly #store: Store;
  readonly #name: HubName;
  readonly #ttlMs: number;
  #mark = 0;
  #acknowledged = 0;

  constructor(store: Store, name: HubName, ttlMs: number) {
    this.#store = store;
    this.#name = name;
    this.#ttlMs = ttlMs;
  }

  /** Renews the hub's record and writes what changed. */
  async write(
    client: Client,
    hub: HubRecord,
    hubChanged: boolean,
    writes: readonly SessionWrite[],
  ): Promise<WriteOutcome> {
    const mark = ++this.#mark;
    const changes = writes.flatMap((write) => {
      const record = write.session ? JSON.stringify(write.session) : '';
      return [write.sessionId, write.version, record, JSON.stringify(toChange(this.#name, write))];
    });
    const outcome = await client.isthmusWrite(
      ...keysOf(this.#store, this.#name.hubId),
      ...argumentsOf(this.#store, this.#name),
      ...[this.#acknowledged, mark, this.#ttlMs, JSON.stringify(hub), hubChanged ? '1' : '0'],
      ...changes,
    );
    return this.#acknowledge(mark, outcome as WriteOutcome);
  }

  /** Writes the hub and all its sessions in place of whatever the store holds of it; others see it in one step. */
  async open(client: Client, hub: HubRecord, writes: readonly SessionWrite[], batch: number): Promise<WriteOutcome> {
    const mark = ++this.#mark;
    const staged = this.#store.keys.staged(this.#name.hubId, this.#name.incarnation, mark);
    for (let start = 0; start < writes.length; start += batch) {
      const part = writes.slice(start, start + batch);
      const fields = part.flatMap((write) => [write.sessionId, `${write.version} ${JSON.stringify(write.session)}`]);
      await client.hset(staged, ...fields);
      await client.expire(staged, STAGED_SECONDS);
    }
    const outcome = await client.isthmusOpen(
      ...keysOf(this.#store, this.#name.hubId),
      staged,
      ...argumentsOf(this.#store, this.#name),
      ...[mark, this.#ttlMs, JSON.stringify(hub), writes.length],
    );
    return this.#acknowledge(mark, outcome as WriteOutcome);
  }

  /** Takes the hub out; does nothing when another incarnation is in charge. */
  remove(client: Client): Promise<void> {
    return remove(client, this.#store, this.#name, false);
  }

  #acknowledge(mark: number, outcome: WriteOutcome): WriteOutcome {
    if (outcome === 'ok') this.#acknowledged = mark;
    return outcome;
  }
}

/** Takes out a hub whose record expired, with its sessions. Whoever notices does it; the script lets one succeed. */
export function removeExpired(client: Client, store: Store, name: HubName): Promise<void> {
  return remove(client, store, name, true);
}

async function remove(client: Client, store: Store, name: HubName, onlyExpired: boolean): Promise<void> {
  const { hubId, incarnation } = name;
  const change: Change = { kind: 'hub-gone', hubId, incarnation, ...(onlyExpired && { expired: true }) };
  const shared = [...keysOf(store, hubId), ...argumentsOf(store, name)];
  await client.isthmusRemove(...shared, JSON.stringify(change), onlyExpired ? '1' : '0');
}

function keysOf({ keys }: Store, hubId: string): string[] {
  return [keys.hub(hubId), keys.sessions(hubId), keys.hubs, keys.meta, keys.changes];
}

function argumentsOf({ keptChanges }: Store, { hubId, incarnation }: HubName): (string | number)[] {
  return [hubId, incarnation, keptChanges];
}

function toChange({ hubId, incarnation }: HubName, { sessionId, version, session }: SessionWrite): Change {
  if (session) return { kind: 'session', session };
  return { kind: 'session-gone', sessionId, hubId, incarnation, version };
}
