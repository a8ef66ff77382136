import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import {
  Directory,
  type Following,
  follow,
  type HubRecord,
  type Registry,
  type SessionRecord,
} from '@isthmus/directory';
import { redisRegistry } from '@isthmus/directory/redis';
import { type RedisServer, startRedis } from '@isthmus/directory/testing/servers';
import { until } from '@isthmus/runtime/testing';
import { check, type Facts, type Findings, kib, mib, millis, whole } from '../findings.ts';
import { type RedisUse, redisUse } from '../redis-info.ts';
import type { LonePhase } from './phase.ts';

const HUBS = 3;
const GATEWAYS = 2;
const SESSIONS = 10_000;
const PLANE = 'scale';
/** How long to count traffic, in milliseconds. */
const AT_REST_MS = 10_000;
const DEADLINE = 120_000;
/** Commands per second: heartbeats and polls of the five programs, and none for sessions. */
const BUSY = 100;

/** Measures the registry alone, with records as large as those of nodes' agents. No sockets but the registry's are used. */
export const registry: LonePhase = {
  name: 'registry',
  what: 'what 10,000 sessions take of Redis, without agents',
  alone,
};

async function alone(): Promise<Findings> {
  const redis = await startRedis();
  const registries: Registry[] = [];
  const connect = () => {
    const registry = redisRegistry({ url: redis.url, plane: PLANE });
    registries.push(registry);
    return registry;
  };
  const stop = new AbortController();
  try {
    const empty = await redisUse(redis.port);
    // Hubs have a copy too: they tell agents about each other.
    const copies = Array.from({ length: HUBS + GATEWAYS }, () => new Copy(connect(), stop.signal));
    const learntMs = await timed(async () => {
      for (let n = 0; n < HUBS; n++) announce(connect(), hubRecord(n), share(n));
      await Promise.all(copies.map((copy) => copy.holds(SESSIONS)));
    });
    const late = new AbortController();
    const snapshotMs = await timed(() => new Copy(connect(), late.signal).holds(SESSIONS));
    late.abort();
    const full = await redisUse(redis.port);
    const streamBytes = Number((await redis.command(`MEMORY USAGE {${PLANE}}:changes SAMPLES 0`)).slice(1));
    // While nothing changes, by Redis' own counts. A command inside a script counts as one.
    const { commands, bytes } = await atRest(redis);
    const bytesPerSession = (full.memory - empty.memory - streamBytes) / SESSIONS;
    const facts: Facts = {
      redisBytes: bytesPerSession,
      redisStreamBytes: streamBytes,
      redisTraffic: bytes,
      snapshotMs: snapshotMs / SESSIONS,
    };
    const rows = [
      [`${whole(SESSIONS)} sessions are announced and known everywhere after`, millis(learntMs)],
      ['a gateway that starts then knows them after', millis(snapshotMs)],
      ['Redis memory of a session', kib(bytesPerSession)],
      ['Redis memory of the stream of changes, at most', mib(streamBytes)],
    ];
    return {
      tables: [{ title: 'The registry, 3 hubs and 2 gateways', columns: ['figure', 'value'], rows }],
      checks: [check('Redis does no work for sessions at rest', commands < BUSY, commands.toFixed(1))],
      facts,
    };
  } finally {
    stop.abort();
    await Promise.all(registries.map((registry) => registry.close()));
    await redis.stop();
  }
}

/** The copy of the plane that a gateway or hub has. */
class Copy {
  readonly #directory = new Directory();
  readonly #following: Following;

  constructor(registry: Registry, signal: AbortSignal) {
    registry.join({
      memberId: randomUUID(),
      roles: ['gateway'],
      adminAddress: '10.0.0.1:8095',
      host: 'node-1.internal',
      version: '0.1.0',
      zone: 'zone-a',
      since: Date.now(),
    });
    this.#following = follow(registry, { directory: this.#directory, hubs() {}, state() {}, signal });
  }

  async holds(sessions: number): Promise<void> {
    const all = async () => this.#directory.placement.size === sessions;
    const what = () => `${this.#directory.placement.size} of ${sessions} sessions: ${this.#following.detail}`;
    await until(all, { deadline: DEADLINE, what });
  }
}

async function timed(act: () => Promise<void>): Promise<number> {
  const start = performance.now();
  await act();
  return performance.now() - start;
}

async function atRest({ port }: RedisServer): Promise<Pick<RedisUse, 'commands' | 'bytes'>> {
  const before = await redisUse(port);
  await pause(AT_REST_MS);
  const after = await redisUse(port);
  const rate = (of: (use: RedisUse) => number) => (of(after) - of(before)) / (AT_REST_MS / 1000);
  return { commands: rate(({ commands }) => commands), bytes: rate(({ bytes }) => bytes) };
}

function share(hub: number): number {
  return Math.floor(SESSIONS / HUBS) + (hub < SESSIONS % HUBS ? 1 : 0);
}

function hubRecord(n: number): HubRecord {
  const host = `10.0.0.${n}`;
  const addresses = { peerAddress: `${host}:8097`, agentAddress: `${host}:8091` };
  return { hubId: randomUUID(), incarnation: 1_800_000_000_000, ...addresses, zone: 'zone-a', draining: false };
}

function announce(registry: Registry, hub: HubRecord, sessions: number): void {
  const registration = registry.register(hub);
  for (let n = 0; n < sessions; n++) registration.announce(sessionRecord(hub, n));
}

/** A record like that of an agent with one node's addresses. */
function sessionRecord({ hubId, incarnation }: HubRecord, n: number): SessionRecord {
  const address = `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`;
  const identifiers = { ipv4: [address], ipv6: [], host: [`node-${n}.internal`], cidr: [], defaultRoute: false };
  return {
    sessionId: randomUUID(),
    tenant: 'default',
    agentId: randomUUID(),
    identifiers,
    hubId,
    incarnation,
    version: 1,
    draining: false,
    since: 1_800_000_000_000 + n,
  };
}
