import { type Clock, guarding } from '@isthmus/runtime';
import type { HubMember, MembershipMessage } from '@isthmus/transport';
import { formatDestination, type PlaneEvents } from '@isthmus/tunnel';
import type { AgentOptions } from './agent.ts';
import { AGENT } from './defaults.ts';
import {
  assess,
  type Held,
  isInPlane,
  isRenewal,
  type Known,
  type KnownHubs,
  membershipOf,
  type Report,
  silent,
  updated,
} from './membership.ts';
import {
  type Attempt,
  ConfiguredServer,
  hubPlaceOf,
  Reconnect,
  type Resolve,
  serverAddressOf,
  type Target,
} from './reconnect.ts';
import type { ServerAddress, Uplink, UplinkOptions } from './uplink.ts';

export interface UpkeepOptions
  extends Pick<
    AgentOptions,
    | 'agentId'
    | 'zone'
    | 'sessionCount'
    | 'server'
    | 'syncInterval'
    | 'syncIntervalCap'
    | 'syncForever'
    | 'rebalanceTime'
  > {
  /** How many servers without a plane there are. */
  readonly serverCount: (uplinks: readonly Uplink[]) => number;
  readonly resolve: Resolve;
  readonly connect: (
    server: ServerAddress,
    attempt: Pick<UplinkOptions, 'membership' | 'leave' | 'timeout' | 'signal'>,
  ) => Promise<Uplink>;
  /** Called when a connection to this server has ended. */
  readonly closed: (server: ServerAddress) => void;
  readonly events: PlaneEvents;
  readonly clock: Clock;
}

/** A connection, from the attempt to its end. */
interface ServerLink {
  /** Its address, once that is known. */
  place: string;
  /** When the attempt began, then when the session did. */
  since: number;
  report?: Report;
  /** Unset while it is an attempt. */
  uplink?: Uplink;
}

/** What to do next. */
interface Step {
  /** Start connecting there. */
  readonly connect?: Target;
  /** When to look again unless something happens, in milliseconds. */
  readonly again: number;
}

/** Keeps an agent connected to the right number of servers, and to the right ones: looks again whenever something happened. */
export class Upkeep {
  readonly #options: UpkeepOptions;
  readonly #reconnect: Reconnect;
  readonly #links = new Set<ServerLink>();
  /** The report of the link that ended last, and the plane of its hub. */
  #lastReport: Report | undefined;
  #lastPlane = '';
  /** Those whose turn is next first. */
  #servers: readonly ConfiguredServer[];
  readonly #stopping = new AbortController();
  #cancel = () => {};
  /** After a defect, check again, because nothing else may trigger it. */
  readonly #guarded = guarding((error) => {
    this.#lookIn(this.#options.syncIntervalCap);
    this.#options.events.emit('fault', 'upkeep', '', error);
  });

  constructor(options: UpkeepOptions) {
    const { clock, resolve, server } = options;
    this.#options = options;
    this.#reconnect = new Reconnect(options);
    // Agents that are configured alike do not all begin with the same one.
    const first = Math.floor(clock.random() * server.hosts.length);
    this.#servers = [...server.hosts.slice(first), ...server.hosts.slice(0, first)].map(
      (host) => new ConfiguredServer(host, server.port, resolve),
    );
    this.look();
  }

  /** Includes those that are leaving. */
  get uplinks(): readonly Uplink[] {
    return [...this.#links].flatMap(({ uplink }) => uplink ?? []);
  }

  /** How many servers it wants to be connected to. */
  get wanted(): number {
    return assess(this.#known).wanted;
  }

  /** Starts no more connections and abandons pending ones. Established ones stay. */
  stop(): void {
    this.#stopping.abort();
    this.#cancel();
  }

  /** Does what is to do now. Call when something happened. */
  look(): void {
    if (this.#stopped) return;
    const known = this.#known;
    const { sessions, membership } = known;
    const { wanted, candidates, better, displaced } = assess(known);
    this.#options.events.emit('server:known', wanted);
    // Better hubs have replaced these, and gateways can know of those.
    const surplus = membership.registry === 'answers' ? Math.max(0, sessions.length - wanted) : 0;
    const replaced = displaced.slice(0, surplus);
    for (const uplink of replaced) uplink.leave();
    const missing = wanted - (sessions.length - replaced.length);
    // Within a plane, an agent hears of every hub.
    const seeks = missing <= 0 && this.#options.syncForever && !isInPlane(sessions);
    const { connect, again } =
      missing > 0 || seeks
        ? this.#fill(known, missing, seeks ? [] : candidates)
        : this.#move(membership, better, displaced.slice(surplus), -missing);
    if (connect) this.#guarded(() => this.#attempt(connect))();
    this.#lookIn(Math.min(this.#options.syncIntervalCap, again));
  }

  /** Connects to one more server. */
  #fill({ sessions, membership }: Known, missing: number, hubs: readonly HubMember[]): Step {
    const reconnect = this.#reconnect;
    reconnect.plan([]);
    const connected = sessions.length > 0;
    // Each server without a plane serves its own callers, who wait for their agents.
    const again = reconnect.wait(missing, connected, isInPlane(sessions));
    if (again > 0) return { again };
    // Hubs of an old report may be many and all gone.
    const configuredFirst = membership.stale && reconnect.pending.every(({ configured }) => !configured);
    const targets = reconnect.targets(hubs, this.#servers, connected, configuredFirst);
    const connect = targets.find(({ wait }) => wait <= 0);
    return connect ? { connect, again: AGENT.youngAttemptMs } : { again: Math.min(...targets.map(({ wait }) => wait)) };
  }

  /** Connects to a better hub whose time has come. */
  #move({ registry }: KnownHubs, better: readonly HubMember[], displaced: readonly Held[], surplus: number): Step {
    const reconnect = this.#reconnect;
    reconnect.anew();
    // Times that were drawn while nothing may move would all have passed when something may.
    reconnect.plan(displaced.length > 0 && registry !== 'away' ? better : []);
    if (displaced.length === 0 || registry !== 'answers') return { again: Number.POSITIVE_INFINITY };
    const busy = displaced.every(({ open }) => open > 0);
    const hub = better.find((hub) => reconnect.moveWait(hub, busy) <= 0);
    if (!hub)
      return { again: busy ? AGENT.lookEveryMs : Math.min(...better.map((hub) => reconnect.moveWait(hub, busy))) };
    // One after the other: the last one is done when what it displaced is leaving.
    if (reconnect.pending.length > 0 || surplus > 0) return { again: AGENT.lookEveryMs };
    const place = hubPlaceOf(hub);
    const [configured] = this.#servers as [ConfiguredServer];
    const again = place === undefined ? configured.wait(reconnect) : reconnect.addresses.wait(place);
    if (again > 0) return { again };
    const target = place === undefined ? { place: configured.place, configured } : { place };
    return { connect: { ...target, better: hub }, again: AGENT.youngAttemptMs };
  }

  /** @param wait in milliseconds */
  #lookIn(wait: number): void {
    this.#cancel();
    if (this.#stopped) return;
    const look = this.#guarded(() => this.look());
    this.#cancel = this.#options.clock.after(Math.max(1, wait), look);
  }

  get #stopped(): boolean {
    return this.#stopping.signal.aborted;
  }

  get #staying(): Uplink[] {
    return this.uplinks.filter(({ leaving }) => !leaving);
  }

  get #connected(): boolean {
    return this.#staying.length > 0;
  }

  get #known(): Known {
    const sessions = this.#staying;
    return {
      ...this.#options,
      sessions,
      membership: this.#membership,
      serverCount: this.#options.serverCount(sessions),
    };
  }

  get #membership(): KnownHubs {
    // What an attempt hears before it is adopted may come from a stranger.
    const reports = [...this.#links].flatMap(({ report, uplink }) => (uplink && report) ?? []);
    return membershipOf(reports, this.#lastReport, this.#now);
  }

  get #now(): number {
    return this.#options.clock.now();
  }

  async #attempt(target: Target): Promise<void> {
    const attempt = this.#reconnect.begin(target, this.#connected);
    const link: ServerLink = { place: target.place, since: attempt.since };
    this.#links.add(link);
    try {
      const server = await this.#serverOf(attempt);
      link.place = formatDestination({ host: server.address, port: server.port });
      const uplink = await this.#options.connect(server, {
        membership: (message) => this.#hear(link, message),
        leave: () => this.#lost(link, true),
        timeout: attempt.timeout,
        signal: this.#stopping.signal,
      });
      const other = this.#ofAnotherPlane(uplink, attempt);
      if (other) {
        uplink.destroy(other);
        throw other;
      }
      const refusal = this.#refusal(uplink, attempt);
      if (refusal === undefined) this.#adopt(uplink, link);
      else {
        this.#end(link);
        uplink.destroy(new Error(refusal));
        if (attempt.better || attempt.configured) this.#reconnect.missed(attempt, isInPlane(this.#staying));
        // Otherwise nothing would keep it from asking there again at once.
        else this.#reconnect.failed(attempt, link.place, this.#connected);
      }
    } catch (error) {
      this.#end(link);
      if (!this.#stopped) this.#failed(attempt, link.place, error as NodeJS.ErrnoException);
    } finally {
      this.#reconnect.end(attempt);
    }
    this.look();
  }

  async #serverOf({ place, configured, calm }: Attempt): Promise<ServerAddress> {
    if (!configured) return serverAddressOf(place);
    this.#servers = [...this.#servers.filter((other) => other !== configured), configured];
    return configured.next(this.#reconnect, calm);
  }

  /** Of two connections to a server the older one stays, as servers expect it. */
  #refusal({ serverId }: Uplink, { better }: Attempt): string | undefined {
    if (this.#stopped) return 'agent stops';
    // A server that leaves may return under its id while its last tunnels still run.
    if (this.#staying.some((other) => other.serverId === serverId)) return 'server is connected already';
    if (better && serverId !== better.hubId) return `hub ${better.hubId} was wanted`;
    return undefined;
  }

  /** The address that a hub reported may lead to a server of another plane, whose callers are not those of this agent. */
  #ofAnotherPlane({ serverId, plane }: Uplink, { configured }: Attempt): Error | undefined {
    const planes = [...this.uplinks.map((uplink) => uplink.plane), this.#lastPlane].filter((name) => name !== '');
    if (configured || planes.length === 0 || planes.includes(plane)) return undefined;
    const whose = plane === '' ? 'no plane' : `plane ${plane}`;
    return new Error(`server ${serverId} of ${whose} answers where a hub of plane ${planes[0]} should`);
  }

  #adopt(uplink: Uplink, link: ServerLink): void {
    const { serverId, protocol, plane, server } = uplink;
    const { events } = this.#options;
    const address = link.place;
    link.since = this.#now;
    link.uplink = uplink;
    if (plane !== '') link.report ??= silent(link.since);
    this.#reconnect.reached(address);
    events.emit('server:open', { address, serverId, protocol });
    const closed = (reason: Error | undefined) => {
      this.#end(link);
      if (!uplink.leaving) this.#lost(link);
      if (reason && !uplink.leaving && !this.#stopped) events.emit('server:failure', address, 'connected', reason);
      events.emit('server:close', { address, serverId }, reason?.message ?? 'closed');
      this.#options.closed(server);
      this.look();
    };
    void uplink.closed.then(this.#guarded(closed));
  }

  #end(link: ServerLink): void {
    this.#links.delete(link);
    const { report, uplink } = link;
    if (!report || !uplink || report.hubs.size === 0) return;
    this.#lastReport = report;
    this.#lastPlane = uplink.plane;
  }

  #failed(attempt: Attempt, place: string, error: NodeJS.ErrnoException): void {
    this.#reconnect.failed(attempt, place, this.#connected, error.code === 'ECONNREFUSED');
    this.#options.events.emit('server:failure', place, 'connecting', error);
  }

  /** @param leaves whether its server says that it is leaving */
  #lost({ place, since }: ServerLink, leaves = false): void {
    this.#reconnect.lost(place, this.#now - since, this.#connected, leaves);
    if (leaves) this.look();
  }

  /** Takes a hub's report. A hub that started is worth an attempt at once, but not by all agents at the same moment. */
  #hear(link: ServerLink, message: MembershipMessage): void {
    if (this.#links.has(link)) {
      const { report } = link;
      const isNews = !report || !isRenewal(report, message, this.#now);
      const known = isNews && new Map(this.#membership.hubs.map(({ hubId, generation }) => [hubId, generation]));
      link.report = updated(report, message, this.#now);
      if (!known) return;
      const started = this.#membership.hubs.filter(({ hubId, generation }) => generation > (known.get(hubId) ?? -1));
      if (started.length > 0) this.#reconnect.started(started.flatMap((hub) => hubPlaceOf(hub) ?? []));
    }
    this.look();
  }
}
