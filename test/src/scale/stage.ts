import { setTimeout as pause } from 'node:timers/promises';
import { type RedisServer, startRedis } from '@isthmus/directory/testing/servers';
import { until } from '@isthmus/runtime/testing';
import { type Door, doorOf } from '../chaos/load/door.ts';
import { peerFlags } from '../harness/flags.ts';
import type { Member } from '../harness/member.ts';
import { hubMember, isUp, startGateway } from '../harness/plane.ts';
import { residentBytes } from '../harness/processes.ts';
import type { Program } from '../harness/program.ts';
import { AS_IN_IMAGE, type Flags } from '../harness/runtime.ts';
import { Scope } from '../harness/scope.ts';
import { newTrust } from '../harness/trust.ts';
import { type Target, target } from './dials.ts';
import { Fleet } from './fleet.ts';
import { type RedisUse, redisUse } from './redis-info.ts';

const HUBS = 3;
const GATEWAYS = 2;
const SESSIONS_PER_AGENT = 2;

/** The default of `--max-waiting-agents`, also for one address: all agents here have the same, where a fleet has many. */
const WAITING_AGENTS = 2000;

/** As in the image, and `collect.mjs` is loaded, so that a garbage collection can be requested. */
export const COLLECTABLE = {
  ...AS_IN_IMAGE,
  NODE_OPTIONS: `${AS_IN_IMAGE.NODE_OPTIONS} --expose-gc --import ${new URL('./collect.mjs', import.meta.url)}`,
};

/** A whole plane with Redis and mTLS, a fleet of simulated agents, and something to dial. */
export interface Stage extends AsyncDisposable {
  readonly redis: RedisServer;
  readonly hubs: readonly Member[];
  readonly gateways: readonly { readonly program: Program; readonly door: Door }[];
  readonly fleet: Fleet;
  readonly target: Target;
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
  const trust = await newTrust(scope);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const plane: Flags = { 'redis-url': redis.url, plane: 'scale', v: 0 };
  const built = await Promise.all(
    Array.from({ length: HUBS }, (_, index) => {
      const id = `hub-${index}`;
      const flags = { ...plane, 'server-id': id, 'max-waiting-agents-per-source': WAITING_AGENTS };
      return hubMember(scope, trust, id, { flags, env: COLLECTABLE });
    }),
  );
  const hubs = built.map(({ member }) => member);
  const gateways = await Promise.all(
    Array.from({ length: GATEWAYS }, async () => {
      const flags = { ...plane, ...(await peerFlags(trust)) };
      const front = await startGateway(scope, trust, flags, COLLECTABLE);
      return { program: front.program, door: doorOf(front) };
    }),
  );
  for (const { program } of hubs) await isUp(program);
  const { cert, key } = await trust.agents.client('agent');
  const tls = { ca: trust.agents.cert, cert, key };
  const hubPorts = built.map(({ agentPort }) => agentPort);
  const fleet = scope.use(new Fleet({ hubPorts, tls, sessionCount: SESSIONS_PER_AGENT, rebalanceTime }));
  const known = () => Promise.all(gateways.map(({ program }) => knownSessions(program)));
  const learnt = async (agents: number) => {
    const all = async () => (await known()).every((count) => count >= agents * SESSIONS_PER_AGENT);
    // A page of metrics visits all sessions, so read it only a few times a second.
    const rarely = { every: 200, deadline: fleet.deadline };
    await until(all, { ...rarely, what: `all sessions of ${agents} agents at every gateway` });
    return performance.now();
  };
  const programs = [...hubs, ...gateways].map(({ program }) => program);
  return {
    redis,
    hubs,
    gateways,
    fleet,
    known,
    learnt,
    sessionsPerAgent: SESSIONS_PER_AGENT,
    target: await target(scope),
    base: await settledBytes(programs.map(({ pid }) => pid)),
    redisBase: await redisUse(redis.port),
    get pids() {
      return [...hubs, ...gateways].filter(({ program }) => program.running).map(({ program }) => program.pid);
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

/** Returns the resident memory of programs that are `COLLECTABLE`, after a garbage collection, in bytes. */
export async function settledBytes(pids: readonly number[]): Promise<number[]> {
  // Twice: the second collection frees what finalizers and the first one released.
  for (let round = 0; round < 2; round++) {
    for (const pid of pids) process.kill(pid, 'SIGUSR2');
    await pause(COLLECTION);
  }
  return pids.map(residentBytes);
}

async function knownSessions(program: Program): Promise<number> {
  return program.value('isthmus_known_sessions');
}
