import { DIRECTORY } from '../defaults.ts';
import type { Change, HubRecord, Quarantine, WatchListener } from '../registry.ts';
import { type Client, isRefusal, type RedisConnection, withoutWrites } from './connection.ts';
import { remove } from './hub.ts';
import { Alarm, Health } from './loop.ts';
import type { Keys } from './options.ts';
import {
  formatPosition,
  type HistoryPosition,
  look,
  parseEntry,
  parsePosition,
  readSessions,
  readSnapshot,
  restoreQuarantines,
} from './records.ts';

const FOLLOWING = 'following the directory';

const isReplica = () => new Error('READONLY this server is a replica');

/** Changes may have been missed. A fresh snapshot fixes it. */
class Gap extends Error {}

/**
 * Follows the directory over its own connection. One loop alternates between two tasks: reading the stream, where it waits for news,
 * and checking for hubs that expired.
 *
 * A missing record alone does not prove that a hub is gone. The store may have been down or come back empty, or its clock may have
 * jumped, and the hub is about to write again. So a hub is reported gone only after its record was missing for `graceMs` in a store that
 * answered all that time.
 */
export class RedisWatcher {
  readonly #connection: RedisConnection;
  readonly #keys: Keys;
  readonly #listener: WatchListener;
  readonly #signal: AbortSignal;
  readonly #health: Health;
  readonly #alarm = new Alarm();
  #position: HistoryPosition | undefined;
  /** Whether the listener had a snapshot. */
  #began = false;
  /** Run of the server that gave the snapshot. */
  #run = '';
  #lookAt = 0;
  /** Quarantine records that the listener holds and the store lacks. */
  #lost: readonly Quarantine[] = [];
  /** Whether the store held quarantines at the last look. */
  #quarantines = false;
  /** Why the last record was skipped, until that is reported. */
  #skipped: string | undefined;
  /** Hubs whose record is missing, and since when. */
  #missing = new Map<string, number>();
  /** This watcher's position at the last look, if the store was ahead of it then. */
  #behindAt: HistoryPosition | undefined;

  constructor(connection: RedisConnection, keys: Keys, listener: WatchListener, signal: AbortSignal) {
    this.#connection = connection;
    this.#keys = keys;
    this.#listener = listener;
    this.#signal = signal;
    this.#health = new Health((up, detail) => signal.aborted || listener.state(up, detail));
  }

  readonly #skip = (why: string) => {
    this.#skipped = why;
  };

  /** Resolves when the signal aborts. Never rejects. */
  async run(): Promise<void> {
    const stop = () => {
      this.#connection.close();
      this.#alarm.ring();
    };
    this.#signal.addEventListener('abort', stop, { once: true });
    while (!this.#signal.aborted) {
      const pause = await this.#round();
      if (!this.#signal.aborted) await this.#alarm.wait(pause);
    }
    this.#connection.close();
  }

  /** Does one read. Returns how long to pause, in milliseconds. */
  async #round(): Promise<number> {
    try {
      if (!this.#position) await this.#start();
      if (performance.now() >= this.#lookAt) await this.#look();
      // The next read waits for a change, for up to a second.
      this.#health.begun(FOLLOWING);
      const changes = await this.#follow();
      this.#health.up(FOLLOWING);
      // More may come, as when a herd connects: each read costs as much as several changes.
      return changes > 0 && changes < DIRECTORY.changesPerRead ? DIRECTORY.coalesceMs : 0;
    } catch (error) {
      if (error instanceof Gap) {
        this.#position = undefined;
        this.#health.note(`${error.message}; taking a new snapshot`);
        return 0;
      }
      this.#missing.clear();
      this.#lookAt = 0;
      return this.#health.down(error);
    }
  }

  /** What a replica holds may be old, but is more than nothing to a process that has just started. */
  async #start(): Promise<void> {
    const { position, run, ...snapshot } = await this.#connection.run(async (client) => {
      const { replica, ...read } = await readSnapshot(client, this.#keys, this.#skip);
      if (replica && !this.#began && !this.#signal.aborted) this.#listener.snapshot(read);
      this.#began = true;
      if (replica) throw isReplica();
      return read;
    });
    this.#lost = this.#signal.aborted ? [] : this.#listener.snapshot(snapshot);
    this.#run = run;
    this.#position = position;
    this.#behindAt = undefined;
    this.#quarantines = false;
  }

  /** @returns how many changes it read */
  async #follow(): Promise<number> {
    const block = Math.max(1, Math.ceil(this.#lookAt - performance.now()));
    const from = formatPosition(this.#position as HistoryPosition);
    const reply = await this.#connection.run((client) =>
      client.xread('COUNT', DIRECTORY.changesPerRead, 'BLOCK', block, 'STREAMS', this.#keys.changes, from),
    );
    const entries = reply?.[0]?.[1] ?? [];
    for (const [id, fields] of entries) {
      const position = parsePosition(id);
      this.#expectNext(position);
      const entry = parseEntry(fields[1] ?? '', this.#skip);
      if (entry) this.#tell(entry.kind === 'opened' ? await this.#reopened(entry.hub) : entry);
      this.#position = position;
    }
    return entries.length;
  }

  #expectNext({ epoch, seq }: HistoryPosition): void {
    const { epoch: known, seq: last } = this.#position as HistoryPosition;
    if (epoch !== known && known !== '') throw this.#emptied();
    if (seq !== last + 1) throw new Gap(`changes ${last + 1} to ${seq - 1} are no longer kept`);
  }

  #emptied(): Gap {
    this.#missing.clear();
    return new Gap('the store was emptied');
  }

  /** The hub wrote all its sessions again. The sessions read now may be later than the entry. Their versions settle that. */
  async #reopened(hub: HubRecord): Promise<Change> {
    const read = (client: Client) => readSessions(client, this.#keys, hub.hubId, this.#skip);
    return { kind: 'hub', hub, sessions: await this.#connection.run(read) };
  }

  #tell(change: Change): void {
    if (!this.#signal.aborted) this.#listener.change(change);
  }

  async #look(): Promise<void> {
    const { hubs, position, run, someQuarantined } = await this.#connection.run(async (client) => {
      const found = await look(client, this.#keys);
      if (found.replica) throw isReplica();
      return found;
    });
    if (run !== this.#run) {
      // It may lack changes that were read from the last one, or hold different ones.
      this.#missing.clear();
      throw new Gap('another server answers');
    }
    this.#compare(position);
    // Only a store that lost the key has none after it had some. The listener knows what to write again.
    if (this.#quarantines && !someQuarantined) throw new Gap('the store lost its quarantines');
    this.#quarantines = someQuarantined;
    await this.#restoreQuarantines();
    if (this.#skipped !== undefined && this.#health.note(`skipped ${this.#skipped}`)) this.#skipped = undefined;
    await this.#dropAbsent(hubs);
    this.#lookAt = performance.now() + DIRECTORY.lookMs;
    if (!this.#signal.aborted) this.#listener.answered(position.seq - (this.#position as HistoryPosition).seq);
  }

  /**
   * Writes quarantine records that the store lost. A store that refuses them (by its access list, or because it is out of memory) can
   * still be followed.
   */
  async #restoreQuarantines(): Promise<void> {
    const lost = this.#lost;
    if (lost.length === 0) return;
    const refusal = await this.#refusalOf((client) => restoreQuarantines(client, this.#keys, lost));
    if (refusal === undefined) this.#lost = [];
    else this.#health.note(`cannot restore quarantines that the registry lost: ${refusal}`);
  }

  /** Writes, and returns why the store refused it; undefined if it did not. */
  #refusalOf(write: (client: Client) => Promise<unknown>): Promise<string | undefined> {
    return this.#connection.run(async (client) => {
      try {
        await write(client);
      } catch (error) {
        if (isRefusal(error)) return withoutWrites(error.message);
        throw error;
      }
      return undefined;
    });
  }

  #compare(store: HistoryPosition): void {
    const here = this.#position as HistoryPosition;
    if (store.epoch !== here.epoch && here.epoch !== '') throw this.#emptied();
    if (store.seq < here.seq) throw new Gap(`the store went back from change ${here.seq} to ${store.seq}`);
    // The read between two looks would have advanced if the stream still had the next change.
    if (this.#behindAt === here) throw new Gap(`changes ${here.seq + 1} to ${store.seq} are missing`);
    this.#behindAt = store.seq > here.seq ? here : undefined;
  }

  /**
   * Drops hubs whose record has been missing for too long. If the store still lists the hub as in charge, it is removed there, and
   * everyone learns of it from the stream. A store that takes no writes takes none of hubs that are well, either: so a record counts as
   * missing only from when the store took a write, and at each look that it takes one.
   */
  async #dropAbsent(inCharge: ReadonlyMap<string, number>): Promise<void> {
    const held = new Map([...this.#listener.hubs()].map(({ hubId, incarnation }) => [hubId, incarnation]));
    const known = [...new Map([...held, ...inCharge]).keys()];
    if (known.length === 0) return;
    const records = await this.#connection.run((client) => client.mget(known.map(this.#keys.hub)));
    const absent = known.filter((_, index) => records[index] == null);
    // Changes nothing, and a server that takes no writes refuses it.
    const deleteNothing = (client: Client) => client.hdel(this.#keys.meta, 'nothing');
    const refusal = absent.length === 0 ? undefined : await this.#refusalOf(deleteNothing);
    if (refusal !== undefined) {
      this.#health.note(`following the directory, but cannot remove hubs that no longer write to it: ${refusal}`);
      this.#missing.clear();
      return;
    }
    const now = performance.now();
    const before = this.#missing;
    this.#missing = new Map(absent.map((hubId) => [hubId, before.get(hubId) ?? now]));
    for (const [hubId, since] of this.#missing) {
      if (now - since < DIRECTORY.graceMs) continue;
      const incarnation = inCharge.get(hubId);
      if (incarnation === undefined) {
        this.#tell({ kind: 'hub-gone', hubId, incarnation: held.get(hubId) ?? 0, expired: true });
      } else await this.#connection.run((client) => remove(client, this.#keys, { hubId, incarnation }, true));
    }
  }
}
