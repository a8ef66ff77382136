import { within } from '@isthmus/runtime';
import type { Member } from '../../records.ts';
import type { Membership } from '../../registry.ts';
import type { Client, RedisConnection } from '../connection/connection.ts';
import type { Keys } from '../keys.ts';
import { Alarm } from '../loop.ts';
import type { RedisTimings } from '../options.ts';

/**
 * Writes at intervals that a process is running. A store that was down or emptied lists the process again after its next write.
 * Failures are not reported here: the watchers of the directory report a store that does not answer.
 */
export class RedisMember implements Membership {
  readonly #member: Member;
  readonly #connection: RedisConnection;
  readonly #key: string;
  readonly #timings: RedisTimings;
  readonly #alarm = new Alarm();
  readonly #finished: Promise<void>;
  #first = true;
  #closing = false;

  constructor(member: Member, connection: RedisConnection, keys: Keys, timings: RedisTimings) {
    this.#member = member;
    this.#connection = connection;
    this.#key = keys.members;
    this.#timings = timings;
    this.#finished = this.#run();
  }

  async close(): Promise<void> {
    this.#closing = true;
    this.#alarm.ring();
    await within(this.#finished, this.#timings.commandMs);
  }

  /** Two processes with one id are two members, so neither hides the other. */
  get #field(): string {
    return `${this.#member.since} ${this.#member.memberId}`;
  }

  async #run(): Promise<void> {
    while (!this.#closing) {
      await this.#try((client) => this.#beat(client));
      if (!this.#closing) await this.#alarm.wait(this.#timings.memberBeatMs);
    }
    await this.#try((client) => client.hdel(this.#key, this.#field));
  }

  async #beat(client: Client): Promise<void> {
    const first = this.#first ? '1' : '0';
    await client.isthmusBeat(this.#key, this.#timings.memberTtlMs, this.#field, JSON.stringify(this.#member), first);
    this.#first = false;
  }

  async #try(command: (client: Client) => Promise<unknown>): Promise<void> {
    await this.#connection.run(command).catch(() => undefined);
  }
}
