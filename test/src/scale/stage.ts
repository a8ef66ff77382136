import { execFileSync } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import type { RedisServer } from '@isthmus/directory/testing/servers';
import { until } from '@isthmus/runtime/testing';
import type { Member } from '../harness/member.ts';
import { cpuMs, residentBytes } from '../harness/processes.ts';
import { AS_IN_IMAGE } from '../harness/runtime.ts';
import type { Scope } from '../harness/scope.ts';
import { Load } from '../rig/calling.ts';
import { listening } from '../rig/child.ts';
import { type Plane, redisFor, startPlane } from '../rig/plane.ts';
import { Fleet } from './fleet.ts';
import type { Hosting } from './tenants/hosted.ts';

const GATEWAYS = 2;
const SESSIONS_PER_AGENT = 2;

/** The default of `--max-waiting-agents`, also for one address: all agents here have the same, where a fleet has many. */
const WAITING_AGENTS = 2000;

/** As in the image, and `collect.mjs` is loaded, so that a garbage collection can be requested. */
const COLLECTABLE = {
  ...AS_IN_IMAGE,
  NODE_OPTIONS: `${AS_IN_IMAGE.NODE_OPTIONS} --expose-gc --import ${new URL('./collect.mjs', import.meta.url)}`,
};

/** How long a dial may take, in milliseconds; the gateway's own limit is lower. */
export const DIAL_WITHIN = 35_000;

/** How long a program may take for a collection, in milliseconds. Nothing reports when V8's threads have returned what it freed. */
const COLLECTION = 1500;

export interface StageOptions {
  readonly hubs: number;
  /** How long agents take to move to the hubs that they prefer, in milliseconds. */
  readonly rebalanceTime: number;
  /** Tenants of the plane, and their agents. Unset: all agents are of the tenant `default`. */
  readonly hosting?: Hosting;
}

/** Redis' own counts of commands and bytes, and its memory in bytes. */
interface RedisUse {
  readonly commands: number;
  readonly bytes: number;
  readonly memory: number;
}

/** A figure of all hubs together, and of all gateways. */
export interface Both {
  readonly hubs: number;
  readonly gateways: number;
}

/** A whole plane with Redis and mTLS, and a fleet of simulated agents. */
export class Stage {
  readonly redis: RedisServer;
  readonly hubs: readonly Member[];
  readonly gateways: readonly Member[];
  readonly doors: Plane['doors'];
  readonly fleet: Fleet;
  /** Of the load's destination. */
  readonly port: number;
  readonly sessionsPerAgent = SESSIONS_PER_AGENT;
  /** Memory before the first agent connected, and what Redis had done and held. */
  base!: Both;
  redisBase!: RedisUse;

  private constructor(redis: RedisServer, { hubs, gateways, doors }: Plane, fleet: Fleet, port: number) {
    this.redis = redis;
    this.hubs = hubs;
    this.gateways = gateways;
    this.doors = doors;
    this.fleet = fleet;
    this.port = port;
  }

  static async start(scope: Scope, { hubs, rebalanceTime, hosting }: StageOptions): Promise<Stage> {
    const redis = await redisFor(scope);
    const waiting = { 'max-waiting-agents-per-source': WAITING_AGENTS };
    const plane = await startPlane(scope, {
      ...{ agents: 0, hubs, gateways: GATEWAYS, registryUrl: redis.url },
      planeFlags: { v: 0, ...(hosting && { 'tenants-dir': hosting.directory.path }) },
      // The flag's socket would be of no tenant.
      gatewayFlags: hosting ? { 'uds-name': undefined } : {},
      each: (id) => ({ env: COLLECTABLE, flags: id.startsWith('hub') && !hosting ? waiting : {} }),
    });
    const { agents } = plane.trust;
    const tls = { ca: agents.cert, ...(await agents.client('agent')) };
    const settings = { hubPorts: plane.agentPorts, tls, sessionCount: SESSIONS_PER_AGENT, rebalanceTime };
    const fleet = scope.use(new Fleet({ ...settings, ...(hosting && { members: hosting.members }) }));
    const { port } = await listening(scope, 'rig/load/destination.ts');
    const stage = new Stage(redis, plane, fleet, port);
    stage.base = await stage.memory();
    stage.redisBase = stage.redisUse();
    return stage;
  }

  /** Dials so many times a second, by HTTP CONNECT, at the gateways in turn. */
  dialling(dialsPerSecond: number): Load {
    return new Load({
      doors: this.doors,
      port: this.port,
      dialsPerSecond,
      tunnels: 0,
      protocols: ['connect'],
      within: DIAL_WITHIN,
    });
  }

  /** Grows the fleet, and waits until all gateways know all of its sessions. */
  async populate(agents: number): Promise<void> {
    if (this.fleet.size < agents) this.fleet.grow(agents);
    await this.fleet.complete();
    await this.learnt(agents);
  }

  /** Sessions that each gateway knows. */
  known(): Promise<number[]> {
    return Promise.all(this.gateways.map((gateway) => gateway.value('isthmus_known_sessions')));
  }

  /** Waits until every gateway knows all sessions of this many agents. */
  async learnt(agents: number): Promise<void> {
    const sessions = agents * SESSIONS_PER_AGENT;
    const all = async () => (await this.known()).every((count) => count >= sessions);
    // A page of metrics visits all sessions, so read it only a few times a second.
    await until(all, { every: 200, deadline: this.fleet.deadline, what: `${sessions} sessions at every gateway` });
  }

  /** Resident memory after a garbage collection, in bytes. */
  async memory(): Promise<Both> {
    // Twice: the second collection frees what finalizers and the first one released.
    for (let round = 0; round < 2; round++) {
      for (const { program } of [...this.hubs, ...this.gateways]) process.kill(program.pid, 'SIGUSR2');
      await pause(COLLECTION);
    }
    return this.#both((pids) => pids.map(residentBytes).reduce((sum, each) => sum + each, 0));
  }

  /** Processor time of those that run, in milliseconds. */
  cpu(): Both {
    return this.#both(cpuMs);
  }

  /** Does something. @returns how long it took, and what processor time those that run took meanwhile, in milliseconds */
  async used<T>(act: () => Promise<T>) {
    const [start, before] = [performance.now(), this.cpu()];
    const result = await act();
    const { hubs, gateways } = this.cpu();
    const cpu: Both = { hubs: hubs - before.hubs, gateways: gateways - before.gateways };
    return { result, ms: performance.now() - start, cpu };
  }

  redisUse(): RedisUse {
    const info = execFileSync('redis-cli', ['-p', String(this.redis.port), 'info'], { encoding: 'utf8' });
    const field = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? Number.NaN);
    return {
      commands: field('total_commands_processed'),
      bytes: field('total_net_input_bytes') + field('total_net_output_bytes'),
      memory: field('used_memory'),
    };
  }

  #both(of: (pids: readonly number[]) => number): Both {
    const [hubs, gateways] = [this.hubs, this.gateways].map((members) =>
      of(members.filter(({ running }) => running).map(({ program }) => program.pid)),
    ) as [number, number];
    return { hubs, gateways };
  }
}
