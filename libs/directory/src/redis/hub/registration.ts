import { within } from '@isthmus/runtime';
import type { HubRecord, SessionRecord } from '../../records.ts';
import { type HubRegistration, type HubUpdate, RegistryUnavailable, type StateListener } from '../../registry.ts';
import type { RedisConnection } from '../connection/connection.ts';
import { Alarm, Health } from '../loop.ts';
import type { RedisTimings } from '../options.ts';
import { Outbox, type SessionWrite } from './outbox.ts';
import type { HubWriter, WriteOutcome } from './writer.ts';

/** Sessions per script call, which take a few milliseconds of Redis' time. */
const SESSIONS_PER_CALL = 200;

/** Keeps one hub's part of the directory up to date: one loop, one write at a time, until closed or superseded. */
export class RedisRegistration implements HubRegistration {
  readonly superseded: Promise<void>;
  readonly #connection: RedisConnection;
  readonly #writer: HubWriter;
  readonly #timings: RedisTimings;
  readonly #outbox: Outbox;
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
  #resolveSuperseded!: () => void;

  constructor(
    hub: HubRecord,
    connection: RedisConnection,
    writer: HubWriter,
    timings: RedisTimings,
    state: StateListener | undefined,
  ) {
    this.#hub = hub;
    this.#connection = connection;
    this.#writer = writer;
    this.#timings = timings;
    this.#outbox = new Outbox(timings);
    this.#health = new Health(state, timings.backoffCapMs);
    this.superseded = new Promise((resolve) => {
      this.#resolveSuperseded = resolve;
    });
    this.#finished = this.#run();
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

  update(update: HubUpdate): void {
    this.#hub = { ...this.#hub, ...update };
    this.#hubChanged = true;
    this.#alarm.ring();
  }

  async close(): Promise<void> {
    if (this.#state === 'running') this.#state = 'closing';
    this.#alarm.ring();
    await within(this.#finished, this.#timings.commandMs);
  }

  async #run(): Promise<void> {
    while (this.#state === 'running') {
      const pause = await this.#round();
      if (this.#state === 'running') await this.#alarm.wait(pause);
    }
    if (this.#state === 'superseded') return;
    // If the store does not answer now, the record expires.
    await this.#connection.run((client) => this.#writer.remove(client)).catch(() => undefined);
  }

  /** Does one write. Returns how long to wait for the next, in milliseconds. */
  async #round(): Promise<number> {
    try {
      const outcome = await (this.#opened ? this.#write() : this.#open());
      if (outcome === 'superseded' && !this.#inCharge) return await this.#takeOver();
      if (outcome === 'superseded' || outcome === 'late') return this.#supersede(outcome);
      if (outcome === 'lost') return this.#reopen();
      this.#opened = true;
      this.#inCharge = true;
      this.#writtenAt = performance.now();
      this.#health.up(`hub ${this.#hub.hubId} is registered`);
      return this.#untilNext();
    } catch (error) {
      // After the time to live, the store has dropped this hub, so withdrawals need not be remembered.
      if (performance.now() - this.#writtenAt > this.#timings.ttlMs) {
        this.#opened = false;
        this.#outbox.forget();
      }
      return this.#health.down(error);
    }
  }

  #untilNext(): number {
    const beatAt = this.#writtenAt + this.#timings.beatMs;
    const next = this.#hubChanged ? 0 : Math.min(beatAt, this.#outbox.nextDue() ?? beatAt);
    return next - performance.now();
  }

  async #write(): Promise<WriteOutcome> {
    const writes = this.#outbox.takeDue(performance.now(), SESSIONS_PER_CALL);
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
    return this.#deliver(writes, () =>
      this.#connection.run((client) => this.#writer.open(client, this.#hub, writes, SESSIONS_PER_CALL)),
    );
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

  /** Called when the store lacks some or all of what this hub wrote. The next round writes it again. */
  #reopen(): number {
    if (!this.#opened) throw new RegistryUnavailable('redis dropped sessions while they were being written');
    this.#opened = false;
    return 0;
  }

  /** Called when the store holds a later incarnation although this process started later, because the clock was set back. */
  async #takeOver(): Promise<number> {
    await this.#connection.run((client) => this.#writer.takeOver(client));
    return 0;
  }

  #supersede(outcome: 'superseded' | 'late'): number {
    this.#state = 'superseded';
    const { hubId, incarnation } = this.#writer;
    const other = outcome === 'late' ? 'another process with this incarnation' : 'a later incarnation';
    this.#health.final(`hub ${hubId}, incarnation ${incarnation}: ${other} is registered, so this one stops writing`);
    this.#resolveSuperseded();
    return 0;
  }
}
