import { setTimeout as pause } from 'node:timers/promises';
import { startRedis } from '@isthmus/directory/testing/servers';
import { until } from '@isthmus/runtime/testing';
import { peerFlags } from '../../harness/flags.ts';
import { startGateway, startHub } from '../../harness/plane.ts';
import { cpuMs } from '../../harness/processes.ts';
import type { Program } from '../../harness/program.ts';
import type { Flags } from '../../harness/runtime.ts';
import { Scope } from '../../harness/scope.ts';
import { newTrust, type Trust } from '../../harness/trust.ts';
import { Fleet } from '../fleet.ts';
import type { FleetSettings } from '../messages.ts';
import { COLLECTABLE, settledBytes } from '../stage.ts';
import { Hosting } from './hosted.ts';

const HUBS = 2;
const GATEWAYS = 2;

/** How often programs are asked for their metrics, in milliseconds: a page lists each tenant. */
const LOOK_EVERY = 500;

/** The default of the agents' flag, in milliseconds. */
const REBALANCE = 30_000;

/** A plane for tenants: gateways and hubs with one directory of tenants' files, which is empty at first. */
export class TenantsPlane implements AsyncDisposable {
  readonly hosting: Hosting;
  readonly hubs: readonly Program[];
  readonly gateways: readonly Program[];
  /** Ports of the gateways for callers. */
  readonly ports: readonly number[];
  readonly fleetSettings: FleetSettings;
  readonly fleet: Fleet;
  readonly #scope: Scope;
  readonly #trust: Trust;
  readonly #flags: Flags;

  private constructor(
    scope: Scope,
    hosting: Hosting,
    trust: Trust,
    flags: Flags,
    hubs: readonly { readonly program: Program; readonly agentPort: number }[],
    gateways: readonly { readonly program: Program; readonly mtls: { readonly port: number } }[],
    tls: FleetSettings['tls'],
  ) {
    this.#scope = scope;
    this.#trust = trust;
    this.#flags = flags;
    this.hosting = hosting;
    this.hubs = hubs.map(({ program }) => program);
    this.gateways = gateways.map(({ program }) => program);
    this.ports = gateways.map(({ mtls }) => mtls.port);
    this.fleetSettings = {
      hubPorts: hubs.map(({ agentPort }) => agentPort),
      tls,
      sessionCount: HUBS,
      rebalanceTime: REBALANCE,
      members: hosting.members,
    };
    this.fleet = scope.use(new Fleet(this.fleetSettings));
  }

  static async start(): Promise<TenantsPlane> {
    const scope = new Scope();
    try {
      const [hosting, trust, redis] = [await Hosting.create(scope), await newTrust(scope), await startRedis()];
      scope.defer(() => redis.stop());
      const flags = { 'redis-url': redis.url, plane: 'scale', v: 0, 'tenants-dir': hosting.directory.path };
      const hubs = [];
      for (let hub = 0; hub < HUBS; hub++) hubs.push(await startHub(scope, trust, flags, COLLECTABLE));
      const gateways = [];
      for (let gateway = 0; gateway < GATEWAYS; gateway++) gateways.push(await newGateway(scope, trust, flags));
      const tls = { ca: trust.agents.cert, ...(await trust.agents.client('agent')) };
      return new TenantsPlane(scope, hosting, trust, flags, hubs, gateways, tls);
    } catch (error) {
      await scope[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Starts one more gateway. @returns how long it took until it accepted callers, in milliseconds */
  async anotherGateway(): Promise<number> {
    await using scope = new Scope();
    const start = performance.now();
    await newGateway(scope, this.#trust, this.#flags);
    return performance.now() - start;
  }

  /** Resident memory of the hubs, and of the gateways, in bytes. */
  async memory(): Promise<{ readonly hubs: number; readonly gateways: number }> {
    const bytes = await settledBytes([...this.hubs, ...this.gateways].map(({ pid }) => pid));
    const sum = (some: readonly number[]) => some.reduce((total, each) => total + each, 0);
    return { hubs: sum(bytes.slice(0, HUBS)), gateways: sum(bytes.slice(HUBS)) };
  }

  /** Processor time of the hubs, and of the gateways, in milliseconds. */
  cpu(): { readonly hubs: number; readonly gateways: number } {
    const of = (programs: readonly Program[]) => cpuMs(programs.map(({ pid }) => pid));
    return { hubs: of(this.hubs), gateways: of(this.gateways) };
  }

  /** Watches the plane for a while. @returns processor time of one hub and of one gateway in each second, in milliseconds */
  async rest(ms: number): Promise<{ readonly hub: number; readonly gateway: number }> {
    const before = this.cpu();
    await pause(ms);
    const after = this.cpu();
    const each = (cpu: number, { length }: readonly Program[]) => cpu / length / (ms / 1000);
    return {
      hub: each(after.hubs - before.hubs, this.hubs),
      gateway: each(after.gateways - before.gateways, this.gateways),
    };
  }

  /** Waits until this many tenants are in force at every hub and gateway. */
  async inForce(tenants: number): Promise<void> {
    const has = async (program: Program) => (await program.value('isthmus_tenants')) >= tenants;
    const all = async () => (await Promise.all([...this.hubs, ...this.gateways].map(has))).every(Boolean);
    await until(all, { every: LOOK_EVERY, what: `${tenants} tenants in force` });
  }

  /** Grows the fleet to this many agents, and waits until each has its sessions and the gateways know them. */
  async populate(agents: number): Promise<void> {
    this.fleet.grow(agents);
    await this.fleet.complete();
    const sessions = agents * HUBS;
    const known = async (gateway: Program) => (await gateway.value('isthmus_known_sessions')) >= sessions;
    const all = async () => (await Promise.all(this.gateways.map(known))).every(Boolean);
    await until(all, {
      every: LOOK_EVERY,
      deadline: this.fleet.deadline,
      what: `${sessions} sessions at every gateway`,
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#scope[Symbol.asyncDispose]();
  }
}

async function newGateway(scope: Scope, trust: Trust, flags: Flags) {
  // The flag's socket would be of no tenant.
  const own = { ...(await peerFlags(trust, ['gateway'])), 'uds-name': undefined };
  return startGateway(scope, trust, { ...flags, ...own }, COLLECTABLE);
}
