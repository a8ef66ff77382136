import { setTimeout as pause } from 'node:timers/promises';
import { type RedisServer, startRedis } from '@isthmus/directory/testing/servers';
import { until } from '@isthmus/runtime/testing';
import type { Member } from '../harness/member.ts';
import { residentBytes } from '../harness/processes.ts';
import { AS_IN_IMAGE } from '../harness/runtime.ts';
import { Scope } from '../harness/scope.ts';
import type { Trust } from '../harness/trust.ts';
import { startPlane } from '../rig/plane.ts';
import { type Callers, target } from './dials.ts';
import { Fleet } from './fleet.ts';
import { type RedisUse, redisUse } from './redis-info.ts';

const HUBS = 3;
const GATEWAYS = 2;
const SESSIONS_PER_AGENT = 2;

/** The default of `--max-waiting-agents`, also for one address: all agents here have the same, where a fleet has many. */
const WAITING_AGENTS = 2000;

/** As in the image, and `collect.mjs` is loaded, so that a garbage collection can be requested. */
const COLLECTABLE = {
  ...AS_IN_IMAGE,
  NODE_OPTIONS: `${AS_IN_IMAGE.NODE_OPTIONS} --expose-gc --import ${new URL('./collect.mjs', import.meta.url)}`,
};

/** What all planes here have in common: members log little, and no agent is a program. */
export const FOR_FLEETS = {
  agents: 0,
  planeFlags: { v: 0 },
  each: (id: string) => ({
    env: COLLECTABLE,
    flags: id.startsWith('hub') ? { 'max-waiting-agents-per-source': WAITING_AGENTS } : {},
  }),
};

/** Files of one certificate for the agents of a fleet. */
export async function fleetTls({ agents }: Trust) {
  return { ca: agents.cert, ...(await agents.client('agent')) };
}

/** A whole plane with Redis and mTLS, a fleet of simulated agents, and something to dial. */
export interface Stage extends AsyncDisposable {
  readonly redis: RedisServer;
  readonly hubs: readonly Member[];
  readonly gateways: readonly Member[];
  readonly fleet: Fleet;
  readonly callers: Callers;
  readonly sessionsPerAgent: number;
  /** Process ids of gateways and hubs that run. */
  readonly pids: number[];
  /** Memory of each hub, then of each gateway, before the first agent connected, in bytes; and what Redis had done and held. */
  readonly base: readonly number[];
  readonly redisBase: RedisUse;
  /** Sessions that each gateway knows. */
  known(): Promise<number[]>;
  /** Waits until every gateway knows all sessions of this many agents. @returns when that was seen, by `performance.now()` */
  learnt(agents: number): Promise<number>;
  /** Grows the fleet, and waits until all gateways know all of its sessions. */
  populate(agents: number): Promise<void>;
}

/** @param rebalanceTime how long agents take to move to the hubs that they prefer, in milliseconds */
export async function stage(rebalanceTime: number): Promise<Stage> {
  const scope = new Scope();
  try {
    return await build(scope, rebalanceTime);
  } catch (error) {
    await scope[Symbol.asyncDispose]();
    throw error;
  }
}

async function build(scope: Scope, rebalanceTime: number): Promise<Stage> {
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const { hubs, gateways, doors, agentPorts, trust } = await startPlane(scope, {
    ...FOR_FLEETS,
    hubs: HUBS,
    gateways: GATEWAYS,
    registryUrl: redis.url,
  });
  const settings = {
    hubPorts: agentPorts,
    tls: await fleetTls(trust),
    sessionCount: SESSIONS_PER_AGENT,
    rebalanceTime,
  };
  const fleet = scope.use(new Fleet(settings));
  const known = () => knownSessions(gateways);
  const members = [...hubs, ...gateways];
  const learnt = (agents: number) => sessionsKnown(gateways, agents * SESSIONS_PER_AGENT, fleet);
  return {
    redis,
    hubs,
    gateways,
    fleet,
    known,
    learnt,
    sessionsPerAgent: SESSIONS_PER_AGENT,
    callers: { gateways: doors, target: await target(scope) },
    base: await settledBytes(members.map(({ program }) => program.pid)),
    redisBase: redisUse(redis.port),
    get pids() {
      return members.filter(({ running }) => running).map(({ program }) => program.pid);
    },
    async populate(agents) {
      if (fleet.size < agents) fleet.grow(agents);
      await fleet.complete();
      await learnt(agents);
    },
    [Symbol.asyncDispose]: () => scope[Symbol.asyncDispose](),
  };
}

/** How long a program may take for a collection, in milliseconds. Nothing reports when V8's threads have returned what it freed. */
const COLLECTION = 1500;

/** Returns the resident memory of programs that are collectable, after a garbage collection, in bytes. */
export async function settledBytes(pids: readonly number[]): Promise<number[]> {
  // Twice: the second collection frees what finalizers and the first one released.
  for (let round = 0; round < 2; round++) {
    for (const pid of pids) process.kill(pid, 'SIGUSR2');
    await pause(COLLECTION);
  }
  return pids.map(residentBytes);
}

function knownSessions(gateways: readonly Member[]): Promise<number[]> {
  return Promise.all(gateways.map((gateway) => gateway.value('isthmus_known_sessions')));
}

/** Waits until every gateway knows so many sessions. @returns when that was seen, by `performance.now()` */
export async function sessionsKnown(gateways: readonly Member[], sessions: number, fleet: Fleet): Promise<number> {
  const all = async () => (await knownSessions(gateways)).every((count) => count >= sessions);
  // A page of metrics visits all sessions, so read it only a few times a second.
  await until(all, { every: 200, deadline: fleet.deadline, what: `${sessions} sessions at every gateway` });
  return performance.now();
}
