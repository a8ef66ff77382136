import { within } from '@isthmus/runtime';
import type { AgentName } from '@isthmus/tunnel';
import { DIRECTORY } from '../defaults.ts';
import {
  byId,
  checkQuarantine,
  type HubRecord,
  type HubRegistration,
  type Member,
  type MemberEntry,
  type PresentMember,
  QuarantineFull,
  type Registry,
  RegistryUnavailable,
  type StateListener,
  type WatchListener,
} from '../registry.ts';
import { type Client, type Endpoint, endpointOf, RedisConnection } from './connection.ts';
import { HubWriter, RedisRegistration } from './hub.ts';
import { Alarm } from './loop.ts';
import { type Keys, planeKeys, type RedisRegistryOptions } from './options.ts';
import { parseMember, writeQuarantine } from './records.ts';
import { RedisWatcher } from './watcher.ts';

/**
 * Writes at intervals that a process is running. A store that was down or emptied lists the process again after its next write.
 * Failures are not reported here: the watchers of the directory report a store that does not answer.
 */
export function redisMember(member: Member, connection: RedisConnection, { members }: Keys): MemberEntry {
  // Two processes with one id are two members, so neither hides the other.
  const field = `${member.since} ${member.memberId}`;
  const alarm = new Alarm();
  let [first, closing] = [true, false];
  const attempt = (command: (client: Client) => Promise<unknown>) => connection.run(command).catch(() => undefined);
  const beat = async (client: Client) => {
    await client.isthmusBeat(members, DIRECTORY.memberTtlMs, field, JSON.stringify(member), first ? '1' : '0');
    first = false;
  };
  const run = async () => {
    while (!closing) {
      await attempt(beat);
      if (!closing) await alarm.wait(DIRECTORY.memberBeatMs);
    }
    await attempt((client) => client.hdel(members, field));
  };
  const finished = run();
  return {
    async close() {
      closing = true;
      alarm.ring();
      await within(finished, DIRECTORY.commandMs);
    },
  };
}

/**
 * Returns the registry of a plane with several processes. It connects on first use, and retries for as long as it takes.
 * @throws RangeError for a malformed URL or plane name.
 */
export function redisRegistry(options: RedisRegistryOptions): Registry {
  return new RedisRegistry(options);
}

class RedisRegistry implements Registry {
  readonly #endpoint: Endpoint;
  readonly #keys: Keys;
  /** Hubs and members. */
  readonly #entries = new Set<{ close(): Promise<void> }>();
  readonly #watches = new Set<Promise<void>>();
  readonly #closing = new AbortController();
  #shared: RedisConnection | undefined;

  constructor(options: RedisRegistryOptions) {
    this.#endpoint = endpointOf(options);
    this.#keys = planeKeys(options.plane);
  }

  register(hub: HubRecord, state?: StateListener): HubRegistration {
    const writer = new HubWriter(this.#keys, hub);
    const registration = new RedisRegistration(hub, this.#connection(), writer, state);
    this.#entries.add(registration);
    return registration;
  }

  watch(listener: WatchListener, signal: AbortSignal): void {
    const connection = new RedisConnection(this.#endpoint, DIRECTORY.lookMs);
    const stop = AbortSignal.any([signal, this.#closing.signal]);
    const run = new RedisWatcher(connection, this.#keys, listener, stop).run().finally(() => this.#watches.delete(run));
    this.#watches.add(run);
  }

  join(member: Member): MemberEntry {
    const joined = redisMember(member, this.#connection(), this.#keys);
    this.#entries.add(joined);
    return joined;
  }

  async members(): Promise<readonly PresentMember[]> {
    const { members } = this.#keys;
    const records = await this.#connection().run((client) => client.isthmusRollCall(members, DIRECTORY.memberTtlMs));
    return byId(records.flatMap((line) => presentMember(line) ?? []));
  }

  async quarantine(agent: AgentName, reason: string | undefined): Promise<boolean> {
    checkQuarantine(agent, reason);
    const outcome = await this.#connection().run((client) => writeQuarantine(client, this.#keys, agent, reason));
    if (outcome === 'full') throw new QuarantineFull(agent.tenant);
    return outcome === 'ok';
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([...this.#entries].map((each) => each.close()));
    await Promise.all(this.#watches);
    this.#shared?.close();
  }

  /** Returns the connection that everything but watches shares. Throws RegistryUnavailable once the registry is closed. */
  #connection(): RedisConnection {
    if (this.#closing.signal.aborted) throw new RegistryUnavailable('the registry is closed');
    this.#shared ??= new RedisConnection(this.#endpoint);
    return this.#shared;
  }
}

/** Reads a line of the roll call: a number and a record. Returns undefined for a malformed one. */
function presentMember(line: string): PresentMember | undefined {
  const end = line.indexOf(' ');
  const member = parseMember(line.slice(end + 1), () => {});
  return member && { ...member, quietMs: Number(line.slice(0, end)) };
}
