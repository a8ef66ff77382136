import { within } from '@isthmus/runtime';
import { DIRECTORY } from '../defaults.ts';
import {
  type Change,
  type HubRecord,
  type HubRegistration,
  RegistryUnavailable,
  type SessionRecord,
  type StateListener,
} from '../registry.ts';
import type { Client, RedisConnection } from './connection.ts';
import { Alarm, Health } from './loop.ts';
import type { Keys } from './options.ts';
import { Outbox, type SessionWrite } from './outbox.ts';
import { afterMark, parseHub } from './records.ts';

/**
 * `lost`: the store does not hold what this hub wrote before. `late`: the store already holds this mark or a higher one. Only another
 * process with the same hub and incarnation can have written it.
 */
export type WriteOutcome = 'ok' | 'superseded' | 'lost' | 'late';

type HubName = Pick<HubRecord, 'hubId' | 'incarnation'>;

/** Runs the scripts for one process of a hub, and numbers its writes. */
export class HubWriter {
  readonly hubId: string;
  /** Of all written records, in place of their own. Only `takeOver` changes it. */
  incarnation: number;
  readonly #keys: Keys;
  #mark = 0;
  #acknowledged = 0;

  constructor(keys: Keys, { hubId, incarnation }: HubName) {
    this.hubId = hubId;
    this.incarnation = incarnation;
    this.#keys = keys;
  }

  /** Continues as the incarnation after the one in charge. */
  async takeOver(client: Client): Promise<void> {
    const inCharge = Number(await client.hget(this.#keys.hubs, this.hubId));
    this.incarnation = Math.max(this.incarnation, inCharge + 1);
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
      ...keysOf(this.#keys, this.hubId),
      ...argumentsOf(this),
      ...[this.#acknowledged, mark, DIRECTORY.ttlMs, this.#stamped(hub), hubChanged ? '1' : '0', held],
      ...changes,
    );
    return this.#acknowledge(mark, outcome as WriteOutcome);
  }

  /** Writes the hub and all its sessions, replacing everything that the store holds of it. Others see it in one step. */
  async open(client: Client, hub: HubRecord, writes: readonly SessionWrite[]): Promise<WriteOutcome> {
    const mark = ++this.#mark;
    const staged = this.#keys.staged(this.hubId, this.incarnation, mark);
    const stage = (part: readonly SessionWrite[]) => {
      const field = ({ version, session }: SessionWrite) => `${version} ${session && this.#stamped(session)}`;
      const fields = part.flatMap((write) => [write.sessionId, field(write)]);
      return client.isthmusStage(staged, DIRECTORY.stagedMs / 1000, ...fields);
    };
    for (const group of groupsOf(groupsOf(writes, DIRECTORY.sessionsPerWrite), DIRECTORY.stagedTogether))
      await Promise.all(group.map(stage));
    const outcome = await client.isthmusOpen(
      ...keysOf(this.#keys, this.hubId),
      staged,
      ...argumentsOf(this),
      ...[mark, DIRECTORY.ttlMs, this.#stamped(hub), writes.length],
    );
    return this.#acknowledge(mark, outcome as WriteOutcome);
  }

  /** Returns the hub's record as the store holds it, whoever wrote it. */
  async read(client: Client): Promise<HubRecord | undefined> {
    const record = await client.get(this.#keys.hub(this.hubId));
    return record ? parseHub(afterMark(record), () => {}) : undefined;
  }

  /** Removes the hub. Does nothing if another incarnation is in charge. */
  remove(client: Client): Promise<void> {
    return remove(client, this.#keys, this, false);
  }

  #stamped(record: HubRecord | SessionRecord): string {
    return JSON.stringify({ ...record, incarnation: this.incarnation });
  }

  #acknowledge(mark: number, outcome: WriteOutcome): WriteOutcome {
    if (outcome === 'ok') this.#acknowledged = mark;
    return outcome;
  }
}

/**
 * Removes a hub, with its sessions.
 * @param onlyExpired whether only if its record has expired. Every watcher that notices calls this; the script lets one succeed
 */
export async function remove(client: Client, keys: Keys, name: HubName, onlyExpired: boolean): Promise<void> {
  const { hubId, incarnation } = name;
  const change: Change = { kind: 'hub-gone', hubId, incarnation, ...(onlyExpired && { expired: true }) };
  const shared = [...keysOf(keys, hubId), ...argumentsOf(name)];
  await client.isthmusRemove(...shared, JSON.stringify(change), onlyExpired ? '1' : '0');
}

function groupsOf<T>(list: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(list.length / size) }, (_, n) => list.slice(n * size, (n + 1) * size));
}

function keysOf(keys: Keys, hubId: string): string[] {
  return [keys.hub(hubId), keys.sessions(hubId), keys.hubs, keys.meta, keys.changes];
}

function argumentsOf({ hubId, incarnation }: HubName): (string | number)[] {
  return [hubId, incarnation, DIRECTORY.keptChanges];
}

/** @param record the session's record as JSON; empty if the session is gone */
function changeOf(name: HubName, { sessionId, version }: Omit<SessionWrite, 'session'>, record: string): string {
  if (record !== '') return `{"kind":"session","session":${record}}`;
  const { hubId, incarnation } = name;
  return JSON.stringify({ kind: 'session-gone', sessionId, hubId, incarnation, version } satisfies Change);
}

/** Keeps one hub's part of the directory up to date: one loop, one write at a time, until closed or superseded. */
export class RedisRegistration implements HubRegistration {
  readonly #superseded = Promise.withResolvers<HubRecord | undefined>();
  readonly #connection: RedisConnection;
  readonly #writer: HubWriter;
  readonly #outbox = new Outbox();
  readonly #health: Health;
  readonly #alarm = new Alarm();
  readonly #finished: Promise<void>;
  #hub: HubRecord;
  #hubChanged = false;
  /** Whether the store is believed to hold what this hub wrote. If not, everything is written again. */
  #opened = false;
  /** Whether the store ever held what this hub wrote. */
  #inCharge = false;
  #state: 'running' | 'superseded' | 'closing' = 'running';
  #writtenAt = performance.now();

  constructor(hub: HubRecord, connection: RedisConnection, writer: HubWriter, state: StateListener | undefined) {
    this.#hub = hub;
    this.#connection = connection;
    this.#writer = writer;
    this.#health = new Health(state);
    this.#finished = this.#run();
  }

  get superseded(): Promise<HubRecord | undefined> {
    return this.#superseded.promise;
  }

  announce(session: SessionRecord): void {
    if (this.#state !== 'running') return;
    this.#outbox.announce(session, performance.now());
    this.#alarm.ring();
  }

  withdraw(sessionId: string, version: number): void {
    if (this.#state !== 'running') return;
    this.#outbox.withdraw(sessionId, version, performance.now());
    this.#alarm.ring();
  }

  drain(): void {
    this.#hub = { ...this.#hub, draining: true };
    this.#hubChanged = true;
    this.#alarm.ring();
  }

  async close(): Promise<void> {
    if (this.#state === 'running') this.#state = 'closing';
    this.#alarm.ring();
    await within(this.#finished, DIRECTORY.commandMs);
  }

  async #run(): Promise<void> {
    while (this.#state === 'running') {
      const pause = await this.#round();
      if (pause !== undefined) await this.#alarm.wait(pause);
      // An announcement rings, and is due later, so that others share its write.
      else while (this.#state === 'running' && this.#untilNext() > 0) await this.#alarm.wait(this.#untilNext());
    }
    if (this.#state === 'superseded') return;
    // If the store does not answer now, the record expires.
    await this.#connection.run((client) => this.#writer.remove(client)).catch(() => undefined);
  }

  /** Does one write. Returns how long to wait for the next, in milliseconds; undefined: until one is due. */
  async #round(): Promise<number | undefined> {
    try {
      const outcome = await (this.#opened ? this.#write() : this.#open());
      if (outcome === 'superseded' && !this.#inCharge) {
        // The store holds a later incarnation although this process started later: the clock was set back.
        await this.#connection.run((client) => this.#writer.takeOver(client));
        return 0;
      }
      if (outcome === 'superseded' || outcome === 'late') return await this.#supersede(outcome);
      if (outcome === 'lost') {
        if (!this.#opened) throw new RegistryUnavailable('redis dropped sessions while they were being written');
        this.#opened = false;
        return 0;
      }
      this.#opened = true;
      this.#inCharge = true;
      this.#writtenAt = performance.now();
      this.#health.up(`hub ${this.#hub.hubId} is registered`);
      return undefined;
    } catch (error) {
      // After the time to live, the store has dropped this hub, so withdrawals need not be remembered.
      if (performance.now() - this.#writtenAt > DIRECTORY.ttlMs) {
        this.#opened = false;
        this.#outbox.forget();
      }
      return this.#health.down(error);
    }
  }

  #untilNext(): number {
    const beatAt = this.#writtenAt + DIRECTORY.beatMs;
    const next = this.#hubChanged ? 0 : Math.min(beatAt, this.#outbox.nextDue() ?? beatAt);
    return next - performance.now();
  }

  async #write(): Promise<WriteOutcome> {
    const writes = this.#outbox.takeDue(performance.now(), DIRECTORY.sessionsPerWrite);
    const held = this.#outbox.confirmed;
    const hubChanged = this.#hubChanged;
    this.#hubChanged = false;
    return this.#deliver(writes, () =>
      this.#connection.run((client) => this.#writer.write(client, this.#hub, hubChanged, held, writes)),
    ).catch((error) => {
      this.#hubChanged ||= hubChanged;
      throw error;
    });
  }

  async #open(): Promise<WriteOutcome> {
    const writes = this.#outbox.takeAll();
    this.#hubChanged = false;
    return this.#deliver(writes, () => this.#connection.run((client) => this.#writer.open(client, this.#hub, writes)));
  }

  async #deliver(writes: readonly SessionWrite[], send: () => Promise<WriteOutcome>): Promise<WriteOutcome> {
    try {
      const outcome = await send();
      if (outcome === 'ok') this.#outbox.settle(writes);
      return outcome;
    } catch (error) {
      this.#outbox.retry(writes, performance.now());
      throw error;
    }
  }

  async #supersede(outcome: 'superseded' | 'late'): Promise<number> {
    this.#state = 'superseded';
    const { hubId, incarnation } = this.#writer;
    const other = outcome === 'late' ? 'another process with this incarnation' : 'a later incarnation';
    this.#health.final(`hub ${hubId}, incarnation ${incarnation}: ${other} is registered, so this one stops writing`);
    this.#superseded.resolve(await this.#connection.run((client) => this.#writer.read(client)).catch(() => undefined));
    return 0;
  }
}
