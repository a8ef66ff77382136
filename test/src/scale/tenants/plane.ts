import { setTimeout as pause } from 'node:timers/promises';
import { until } from '@isthmus/runtime/testing';
import type { Member } from '../../harness/member.ts';
import { cpuMs } from '../../harness/processes.ts';
import { Scope } from '../../harness/scope.ts';
import { ownRedis, type Plane, startPlane } from '../../rig/plane.ts';
import { Fleet } from '../fleet.ts';
import type { FleetSettings } from '../messages.ts';
import { FOR_FLEETS, fleetTls, sessionsKnown, settledBytes } from '../stage.ts';
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
  readonly hubs: readonly Member[];
  readonly gateways: readonly Member[];
  /** Ports of the gateways for callers. */
  readonly ports: readonly number[];
  readonly fleet: Fleet;
  readonly #scope: Scope;

  private constructor(
    scope: Scope,
    hosting: Hosting,
    { hubs, gateways, doors, agentPorts: hubPorts }: Plane,
    tls: FleetSettings['tls'],
  ) {
    this.#scope = scope;
    this.hosting = hosting;
    this.hubs = hubs;
    this.gateways = gateways;
    this.ports = doors.map(({ mtls }) => mtls.port);
    const agents = { sessionCount: HUBS, rebalanceTime: REBALANCE, members: hosting.members };
    this.fleet = scope.use(new Fleet({ hubPorts, tls, ...agents }));
  }

  static async start(): Promise<TenantsPlane> {
    const scope = new Scope();
    try {
      const [hosting, registryUrl] = [await Hosting.create(scope), await ownRedis(scope)];
      const planeFlags = { ...FOR_FLEETS.planeFlags, 'tenants-dir': hosting.directory.path };
      // The flag's socket would be of no tenant.
      const gatewayFlags = { 'uds-name': undefined };
      const sizes = { hubs: HUBS, gateways: GATEWAYS };
      const plane = await startPlane(scope, { ...FOR_FLEETS, ...sizes, registryUrl, planeFlags, gatewayFlags });
      return new TenantsPlane(scope, hosting, plane, await fleetTls(plane.trust));
    } catch (error) {
      await scope[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Resident memory of the hubs, and of the gateways, in bytes. */
  async memory(): Promise<{ readonly hubs: number; readonly gateways: number }> {
    const bytes = await settledBytes([...this.hubs, ...this.gateways].map(({ program }) => program.pid));
    const sum = (some: readonly number[]) => some.reduce((total, each) => total + each, 0);
    return { hubs: sum(bytes.slice(0, HUBS)), gateways: sum(bytes.slice(HUBS)) };
  }

  /** Processor time of the hubs, and of the gateways, in milliseconds. */
  cpu(): { readonly hubs: number; readonly gateways: number } {
    const of = (members: readonly Member[]) => cpuMs(members.map(({ program }) => program.pid));
    return { hubs: of(this.hubs), gateways: of(this.gateways) };
  }

  /** Watches the plane for a while. @returns processor time of one hub and of one gateway in each second, in milliseconds */
  async rest(ms: number): Promise<{ readonly hub: number; readonly gateway: number }> {
    const before = this.cpu();
    await pause(ms);
    const after = this.cpu();
    const each = (cpu: number, { length }: readonly Member[]) => cpu / length / (ms / 1000);
    return {
      hub: each(after.hubs - before.hubs, this.hubs),
      gateway: each(after.gateways - before.gateways, this.gateways),
    };
  }

  /** Waits until this many tenants are in force at every hub and gateway. */
  async inForce(tenants: number): Promise<void> {
    const has = async (member: Member) => (await member.value('isthmus_tenants')) >= tenants;
    const all = async () => (await Promise.all([...this.hubs, ...this.gateways].map(has))).every(Boolean);
    await until(all, { every: LOOK_EVERY, what: `${tenants} tenants in force` });
  }

  /** Grows the fleet to this many agents, and waits until each has its sessions and the gateways know them. */
  async populate(agents: number): Promise<void> {
    this.fleet.grow(agents);
    await this.fleet.complete();
    await sessionsKnown(this.gateways, agents * HUBS, this.fleet);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#scope[Symbol.asyncDispose]();
  }
}
