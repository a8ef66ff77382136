import { FakeClock } from '@isthmus/runtime/testing';
import type { HubMember, MembershipMessage } from '@isthmus/transport';
import { planeEvents } from '@isthmus/tunnel';
import { ranking } from '../membership.ts';
import { Upkeep, type UpkeepOptions } from '../upkeep.ts';
import type { ServerAddress, Uplink, UplinkOptions } from '../uplink.ts';

/** The delay of a hub's first message after the connection, in milliseconds. */
const TELL_AFTER = 1;

/** A hub without a wire: agents of this process connect to it by a function call. */
export class FakeHub {
  readonly id: string;
  readonly uplinks = new Set<FakeUplink>();
  up = true;
  /** Whether the registry answers it. */
  current = true;
  /** Whether it says that it is leaving as soon as an agent connects. */
  leaves = false;
  /** What it says of PINGs at rest. */
  restSeconds = 1;
  /** When each connection arrived. */
  readonly accepted: number[] = [];

  constructor(id: string) {
    this.id = id;
  }
}

export class FakeUplink implements Uplink {
  readonly server: ServerAddress;
  readonly serverId: string;
  readonly protocol = 'link';
  readonly plane: string;
  readonly serverCount: number;
  readonly restSeconds: number;
  readonly hear: Pick<UplinkOptions, 'membership' | 'leave'>;
  open = 0;
  leaving = false;
  left = false;
  readonly #hub: FakeHub;
  readonly #closed = Promise.withResolvers<Error | undefined>();
  readonly closed = this.#closed.promise;

  constructor(
    hub: FakeHub,
    server: ServerAddress,
    hear: FakeUplink['hear'],
    { plane, serverCount }: { readonly plane: string; readonly serverCount: number },
  ) {
    this.#hub = hub;
    this.serverId = hub.id;
    this.server = server;
    this.hear = hear;
    this.plane = plane;
    this.serverCount = serverCount;
    this.restSeconds = hub.restSeconds;
    hub.uplinks.add(this);
  }

  drain(): void {}

  /** The hub says that it is leaving. */
  hubLeaves(): void {
    this.leaving = true;
    this.hear.leave();
  }

  leave(): void {
    this.leaving = true;
    this.left = true;
    if (this.open === 0) this.destroy(new Error('left by its agent'));
  }

  destroy(reason: Error): void {
    this.#hub.uplinks.delete(this);
    this.#closed.resolve(reason);
  }
}

/** Hubs of one plane, each at an address of its own, or all behind one. */
export class FakePlane {
  readonly clock: FakeClock;
  readonly hubs = new Map<string, FakeHub>();
  readonly #members = new Map<string, HubMember>();
  readonly #behindOne: boolean;
  current = true;
  /** Addresses that agents tried, in order. */
  readonly asked: string[] = [];
  #turn = 0;

  /** @param behindOne whether agents know only a load balancer's address, which leads to each hub in turn */
  constructor(clock: FakeClock, behindOne = false) {
    this.clock = clock;
    this.#behindOne = behindOne;
  }

  /** Starts a hub, for the first time or again. */
  start(hubId: string, more: Partial<HubMember> = {}): FakeHub {
    const hub = this.hubs.get(hubId) ?? new FakeHub(hubId);
    hub.up = true;
    this.hubs.set(hubId, hub);
    const generation = (this.#members.get(hubId)?.generation ?? 0) + 1;
    const address = this.#behindOne ? '' : `${hubId}:1`;
    this.tell({ hubId, address, zone: '', draining: false, generation, ...more });
    return hub;
  }

  /** Kills a hub. The registry does not know yet. */
  kill(hubId: string): void {
    const hub = this.hubs.get(hubId) as FakeHub;
    hub.up = false;
    for (const uplink of [...hub.uplinks]) uplink.destroy(new Error('connection closed'));
  }

  tell(member: HubMember): void {
    this.#members.set(member.hubId, member);
    this.say({ type: 'membership-change', current: this.current, changed: [member], gone: [] });
  }

  say(message: MembershipMessage): void {
    for (const hub of this.hubs.values()) {
      const word = { ...message, current: message.current && hub.current };
      for (const uplink of [...hub.uplinks]) uplink.hear.membership(word);
    }
  }

  /** Renews the hubs' reports as long as the clock runs. */
  beat(ms: number): void {
    this.clock.after(ms, () => {
      this.say({ type: 'membership-change', current: this.current, changed: [], gone: [] });
      this.beat(ms);
    });
  }

  readonly connect: UpkeepOptions['connect'] = async (server, hear) => {
    this.asked.push(server.address);
    const up = [...this.hubs.values()].filter((hub) => hub.up);
    const hub = this.#behindOne ? up[this.#turn++ % up.length] : this.hubs.get(server.address);
    if (!hub?.up) throw new Error('connection refused');
    hub.accepted.push(this.clock.now());
    const uplink = new FakeUplink(hub, server, hear, { plane: 'p', serverCount: 1 });
    // As on a link: the hub's first message follows a while after the connection.
    this.clock.after(TELL_AFTER, () => {
      const current = this.current && hub.current;
      hear.membership({ type: 'membership', current, hubs: [...this.#members.values()] });
      if (hub.leaves) uplink.hubLeaves();
    });
    return uplink;
  };

  /** Makes the upkeep of an agent in this plane whose configured server is `origin`. */
  agent(agentId: string, origin: string, more: Partial<UpkeepOptions> = {}): Upkeep {
    return new Upkeep({
      agentId,
      zone: '',
      sessionCount: 2,
      serverCount: () => 1,
      syncInterval: 1000,
      syncIntervalCap: 10_000,
      syncForever: false,
      rebalanceTime: 30_000,
      server: { hosts: [origin], port: 1 },
      resolve: async () => [origin],
      clock: this.clock,
      events: planeEvents(),
      connect: this.connect,
      closed() {},
      ...more,
    });
  }
}

/** Returns the ids of the hubs that an agent is connected to and stays with. */
export function hubsOf(agent: Upkeep): string[] {
  return agent.uplinks
    .filter(({ leaving }) => !leaving)
    .map(({ serverId }) => serverId)
    .sort();
}

export const MINUTE = 60_000;

/** Makes a plane of these hubs that renews its reports. */
export function planeOf(...hubIds: string[]) {
  const clock = new FakeClock();
  const plane = new FakePlane(clock);
  for (const hubId of hubIds) plane.start(hubId);
  plane.beat(10_000);
  return { clock, plane };
}

/** Makes this many agents of a plane. Their configured server is its first hub. */
export function agents(plane: FakePlane, count: number, more: Parameters<FakePlane['agent']>[2] = {}): Upkeep[] {
  const [origin] = plane.hubs.keys();
  return Array.from({ length: count }, (_, index) => plane.agent(`agent-${index}`, origin as string, more));
}

/** Returns the hubs that an agent should be connected to. */
export function best(agentId: string, plane: FakePlane, count: number): string[] {
  const hubs = [...plane.hubs.keys()].map((hubId) => ({
    hubId,
    address: '',
    zone: '',
    draining: false,
    generation: 1,
  }));
  return ranking({ agentId, zone: '' }, hubs)
    .slice(0, count)
    .map(({ hubId }) => hubId)
    .sort();
}

export function uplinkTo(agent: Upkeep, hubId: string): FakeUplink {
  return agent.uplinks.find(({ serverId }) => serverId === hubId) as FakeUplink;
}
