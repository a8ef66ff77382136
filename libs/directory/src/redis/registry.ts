import { within } from '@isthmus/runtime';
import { DIRECTORY } from '../defaults.ts';
import {
  byId,
  checkQuarantine,
  type Member,
  type MemberEntry,
  type PresentMember,
  QuarantineFull,
  type Registry,
  RegistryUnavailable,
} from '../registry.ts';
import { type Client, endpointOf, RedisConnection } from './connection.ts';
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
  const [endpoint, keys] = [endpointOf(options), planeKeys(options.plane)];
  /** Hubs and members. */
  const entries = new Set<{ close(): Promise<void> }>();
  const watches = new Set<Promise<void>>();
  const closing = new AbortController();
  let shared: RedisConnection | undefined;
  /** Returns the connection that everything but watches shares. Throws RegistryUnavailable once the registry is closed. */
  const connection = () => {
    if (closing.signal.aborted) throw new RegistryUnavailable('the registry is closed');
    shared ??= new RedisConnection(endpoint);
    return shared;
  };
  return {
    register(hub, state) {
      const registration = new RedisRegistration(hub, connection(), new HubWriter(keys, hub), state);
      entries.add(registration);
      return registration;
    },
    watch(listener, signal) {
      const stop = AbortSignal.any([signal, closing.signal]);
      const watcher = new RedisWatcher(new RedisConnection(endpoint, DIRECTORY.lookMs), keys, listener, stop);
      const run = watcher.run().finally(() => watches.delete(run));
      watches.add(run);
    },
    join(member) {
      const joined = redisMember(member, connection(), keys);
      entries.add(joined);
      return joined;
    },
    async members() {
      const records = await connection().run((client) => client.isthmusRollCall(keys.members, DIRECTORY.memberTtlMs));
      return byId(records.flatMap((line) => presentMember(line) ?? []));
    },
    async quarantine(agent, reason) {
      checkQuarantine(agent, reason);
      const outcome = await connection().run((client) => writeQuarantine(client, keys, agent, reason));
      if (outcome === 'full') throw new QuarantineFull(agent.tenant);
      return outcome === 'ok';
    },
    async close() {
      closing.abort();
      await Promise.all([...entries].map((each) => each.close()));
      await Promise.all(watches);
      shared?.close();
    },
  };
}

/** Reads a line of the roll call: a number and a record. Returns undefined for a malformed one. */
function presentMember(line: string): PresentMember | undefined {
  const end = line.indexOf(' ');
  const member = parseMember(line.slice(end + 1), () => {});
  return member && { ...member, quietMs: Number(line.slice(0, end)) };
}
