import type { HubMember, MembershipMessage } from '@isthmus/transport';
import { Backoff, formatDestination, type PlaneEvents, parseDestination } from '@isthmus/tunnel';
import type { Clock } from './clock.ts';
import { type Assessment, assess, isInPlane } from './coverage.ts';
import { Membership } from './membership.ts';
import { Moves } from './moves.ts';
import type { Origin } from './origin.ts';
import { Redial } from './redial.ts';
import type { ServerAddress, Uplink, UplinkOptions } from './uplink.ts';

export interface UpkeepOptions {
  readonly agentId: string;
  readonly zone: string;
  readonly sessionCount: number | 'all';
  /** How many servers there are that share no plane. */
  readonly serverCount: (uplinks: readonly Uplink[]) => number;
  readonly origin: Origin;
  readonly syncInterval: number;
  readonly syncIntervalCap: number;
  readonly syncForever: boolean;
  /** How long all agents together take to move their sessions to better hubs, in milliseconds. */
  readonly rebalanceTime: number;
  readonly connect: (server: ServerAddress, hear: Pick<UplinkOptions, 'membership' | 'leave'>) => Promise<Uplink>;
  /** A connection to this server has ended. */
  readonly closed: (server: ServerAddress) => void;
  readonly events: PlaneEvents;
  readonly clock: Clock;
}

/** Agents that lost the same server, or hear of the same new one, connect at random times within this, in milliseconds. */
const STAGGER = 2000;

/** An attempt that takes longer does not hold up another address, in milliseconds. */
const YOUNG = 1000;

/** A server that ends connections sooner than this is not hastened back to, in milliseconds. */
const BRIEF = 1000;

/** Connections in a row to servers that were connected already, after which the configured server is asked at a slow pace. */
const MAX_MISSES = 8;
const SLOW_PACE = 60_000;

/** While there is something to wait for that nothing tells, such as the end of a tunnel, it is looked at so often. */
const LOOK_EVERY = 1000;

/** The configured server among the addresses that are being connected to. */
const ORIGIN = 'origin';

interface Target {
  /** Unset for the configured server, which leads to any hub. */
  readonly server?: ServerAddress;
  /** The only hub that is wanted. */
  readonly only?: string;
}

/**
 * Keeps an agent connected to as many servers as it should be, and to the right ones. All of it is one question, asked
 * whenever something happened: what is missing or misplaced now, and when is it worth asking again.
 *
 * With no session left it connects at once. Else it waits a random time, for a whole herd of agents has seen the same.
 */
export class Upkeep {
  readonly #options: UpkeepOptions;
  readonly #clock: Clock;
  readonly #uplinks = new Set<Uplink>();
  readonly #membership: Membership;
  readonly #generations = new Map<string, number>();
  readonly #redial: Redial;
  readonly #moves: Moves;
  /** Attempts under way, by address, and when they began. */
  readonly #pending = new Map<string, number>();
  readonly #seek: Backoff;
  #misses = 0;
  #seekAt = 0;
  /** When the next missing session may be sought. */
  #fillAt: number | undefined;
  /** Where the last session was lost. */
  #lost = '';
  #cancel = () => {};
  #stopped = false;

  constructor(options: UpkeepOptions) {
    const { syncInterval, syncIntervalCap, rebalanceTime, clock } = options;
    this.#options = options;
    this.#clock = clock;
    this.#membership = new Membership(clock.now);
    this.#redial = new Redial(syncInterval, syncIntervalCap, clock);
    this.#seek = new Backoff(syncInterval, syncIntervalCap, clock.random);
    this.#moves = new Moves(rebalanceTime, clock);
    this.reconcile();
  }

  /** Those that go away included. */
  get uplinks(): readonly Uplink[] {
    return [...this.#uplinks];
  }

  get wanted(): number {
    return this.#assess().wanted;
  }

  /** Connects to nothing more; what is connected stays. */
  stop(): void {
    this.#stopped = true;
    this.#cancel();
  }

  reconcile(): void {
    if (this.#stopped) return;
    const assessment = this.#assess();
    const { wanted, displaced } = assessment;
    this.#options.events.emit('server:known', wanted);
    const staying = this.#staying().length;
    if (this.#membership.current) for (const uplink of displaced.slice(0, staying - wanted)) uplink.retire();
    const waits = [this.#options.syncIntervalCap, this.#fill(assessment, staying), this.#move(assessment, staying)];
    this.#cancel();
    this.#cancel = this.#clock.after(Math.max(1, Math.min(...waits)), () => this.reconcile());
  }

  #assess(): Assessment<Uplink> {
    const { agentId, zone, sessionCount, serverCount } = this.#options;
    const uplinks = this.#staying();
    const { hubs } = this.#membership;
    return assess({ agentId, zone, sessionCount, hubs, uplinks, serverCount: serverCount(uplinks) });
  }

  #staying(): Uplink[] {
    return this.uplinks.filter(({ leaving }) => !leaving);
  }

  /** Begins to connect where a session is missing. @returns when to ask again, in milliseconds */
  #fill({ wanted, candidates }: Assessment, staying: number): number {
    const seeks = this.#options.syncForever && !isInPlane(this.#staying());
    const missing = Math.max(wanted - staying, Number(seeks));
    if (missing <= 0) {
      this.#fillAt = undefined;
      return Number.POSITIVE_INFINITY;
    }
    const now = this.#clock.now();
    this.#fillAt ??= now + this.#clock.random() * STAGGER;
    const young = [...this.#pending.values()].filter((since) => now - since < YOUNG);
    if (young.length >= missing) return YOUNG - (now - Math.min(...young));
    if (staying > 0 && now < this.#fillAt) return this.#fillAt - now;
    const targets = this.#targets(seeks && staying >= wanted ? [] : candidates, staying);
    const next = targets.find(({ wait }) => wait === 0);
    if (!next) return Math.min(...targets.map(({ wait }) => wait));
    void this.#attempt(next);
    return YOUNG;
  }

  /** Where to connect, best first: where a session was just lost it is least likely to work. */
  #targets(candidates: readonly HubMember[], staying: number): (Target & { readonly wait: number })[] {
    const hubs = candidates
      .filter(({ address }) => address !== '' && !this.#pending.has(address))
      .map(({ address }) => ({ server: parseAddress(address), wait: this.#redial.wait(address), address }))
      .sort((a, b) => Number(a.address === this.#lost) - Number(b.address === this.#lost));
    return this.#pending.has(ORIGIN) ? hubs : [...hubs, { wait: this.#originWait(staying) }];
  }

  #originWait(staying: number): number {
    const { origin } = this.#options;
    const wait = origin.wait(this.#redial);
    // Whatever it leads to is new to an agent that has nothing.
    return staying === 0 ? wait : Math.max(wait, this.#seekAt - this.#clock.now());
  }

  /** Begins to connect to a better hub whose time has come. @returns when to ask again, in milliseconds */
  #move({ wanted, better, displaced }: Assessment, staying: number): number {
    const apt = staying >= wanted && displaced.length > 0;
    this.#moves.plan(apt ? better : []);
    if (!apt || !this.#membership.current) return Number.POSITIVE_INFINITY;
    const busy = displaced.every(({ open }) => open > 0);
    const [hubId] = this.#moves.due(busy);
    const hub = better.find((one) => one.hubId === hubId);
    // One at a time: it is over before the next has a session to displace.
    const idle = this.#pending.size === 0 && staying === wanted;
    if (hub && idle)
      void this.#attempt({ only: hub.hubId, ...(hub.address !== '' && { server: parseAddress(hub.address) }) });
    return hub || busy ? LOOK_EVERY : this.#moves.wait(busy);
  }

  async #attempt({ server, only }: Target): Promise<void> {
    const { origin, connect, events } = this.#options;
    const key = server ? placeOf(server) : ORIGIN;
    this.#pending.set(key, this.#clock.now());
    const informant = this.#membership.informant();
    let place = server ? placeOf(server) : origin.name;
    try {
      const address = server ?? (await origin.next(this.#redial));
      place = placeOf(address);
      const uplink = await connect(address, {
        membership: (message) => {
          informant.hear(message);
          this.#news(message);
        },
        leave: () => {
          this.#lost = place;
          this.reconcile();
        },
      });
      if (this.#adopt(uplink, only, informant.end)) this.#found();
      else this.#missed(only, informant.end);
    } catch (error) {
      this.#redial.failed(place);
      if (only !== undefined) this.#moves.failed(only);
      events.emit('server:failure', place, 'to_server', error as Error);
    }
    this.#pending.delete(key);
    this.reconcile();
  }

  /** Keeps a connection, unless its server is connected already: then the older one stays, as servers expect it. */
  #adopt(uplink: Uplink, only: string | undefined, forget: () => void): boolean {
    const { serverId, protocol, server } = uplink;
    const { events } = this.#options;
    const refusal = this.#refusal(uplink, only);
    if (refusal !== undefined) {
      uplink.destroy(new Error(refusal));
      return false;
    }
    const since = this.#clock.now();
    this.#uplinks.add(uplink);
    const address = placeOf(server);
    events.emit('server:open', { address, serverId, protocol });
    void uplink.closed.then((reason) => {
      this.#uplinks.delete(uplink);
      forget();
      this.#options.closed(server);
      if (!uplink.leaving) this.#noteLoss(address, this.#clock.now() - since);
      if (reason && !uplink.leaving && !this.#stopped) events.emit('server:failure', address, 'from_server', reason);
      events.emit('server:close', { address, serverId }, reason?.message ?? 'closed');
      this.reconcile();
    });
    return true;
  }

  #noteLoss(address: string, lived: number): void {
    this.#lost = address;
    this.#redial.lost(address, lived);
    if (this.#staying().length === 0 && lived >= BRIEF) this.#redial.hasten();
  }

  #refusal({ serverId }: Uplink, only: string | undefined): string | undefined {
    if (this.#stopped) return 'agent stops';
    // A server that leaves may come back under its id while its last tunnels still run.
    if (this.#staying().some((other) => other.serverId === serverId)) return 'server is connected already';
    if (only !== undefined && serverId !== only) return `hub ${only} was wanted`;
    return undefined;
  }

  #found(): void {
    this.#fillAt = undefined;
    this.#seekAfresh();
  }

  #missed(only: string | undefined, forget: () => void): void {
    forget();
    if (only !== undefined) {
      this.#moves.failed(only);
      return;
    }
    const slow = ++this.#misses > MAX_MISSES && isInPlane(this.#staying());
    const pause = slow ? SLOW_PACE * (0.5 + this.#clock.random()) : this.#seek.next();
    this.#seekAt = this.#clock.now() + pause;
  }

  #seekAfresh(): void {
    this.#misses = 0;
    this.#seekAt = 0;
    this.#seek.reset();
  }

  /** What a hub told. A hub that started, again or for the first time, is worth a try at once, but not by all agents. */
  #news(message: MembershipMessage): void {
    const hubs = message.type === 'membership' ? message.hubs : message.changed;
    const fresh = hubs.filter(({ hubId, generation }) => generation > (this.#generations.get(hubId) ?? -1));
    for (const { hubId, generation, address } of fresh) {
      this.#generations.set(hubId, generation);
      this.#redial.forgive(address);
    }
    if (fresh.length > 0) {
      this.#seekAfresh();
      this.#fillAt = undefined;
      this.#forgetGone();
    }
    this.reconcile();
  }

  #forgetGone(): void {
    const hubIds = new Set(this.#membership.hubs.map(({ hubId }) => hubId));
    for (const hubId of this.#generations.keys()) if (!hubIds.has(hubId)) this.#generations.delete(hubId);
  }
}

function placeOf({ address, port }: ServerAddress): string {
  return formatDestination({ host: address, port });
}

function parseAddress(text: string): ServerAddress {
  const { host, port } = parseDestination(text);
  return { address: host, port };
}
