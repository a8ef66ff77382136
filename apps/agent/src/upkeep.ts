import { type Clock, guarding } from '@isthmus/runtime';
import type { MembershipMessage } from '@isthmus/transport';
import { formatDestination, type PlaneEvents } from '@isthmus/tunnel';
import type { AgentOptions } from './agent.ts';
import { assess, decide, isInPlane, type Known } from './decide.ts';
import { type Membership, membershipOf, type Report, silent, updated } from './membership.ts';
import { type Attempt, Reconnect } from './reconnect.ts';
import { addressOf, ConfiguredServer, placeOf, type Resolve, type Target } from './targets.ts';
import type { ServerAddress, Uplink, UplinkOptions } from './uplink.ts';

type Flags =
  | 'agentId'
  | 'zone'
  | 'sessionCount'
  | 'server'
  | 'syncInterval'
  | 'syncIntervalCap'
  | 'syncForever'
  | 'rebalanceTime';

export interface UpkeepOptions extends Pick<AgentOptions, Flags> {
  /** How many servers without a plane there are. */
  readonly serverCount: (uplinks: readonly Uplink[]) => number;
  readonly resolve?: Resolve;
  readonly connect: (
    server: ServerAddress,
    attempt: Pick<UplinkOptions, 'membership' | 'leave' | 'timeout' | 'signal'>,
  ) => Promise<Uplink>;
  /** Called when a connection to this server has ended. */
  readonly closed: (server: ServerAddress) => void;
  readonly events: PlaneEvents;
  readonly clock: Clock;
}

/** A connection that an attempt made. */
interface Link {
  /** Its address, once that is known. */
  place: string;
  /** When it was up. */
  since?: number;
  report?: Report;
  ended: boolean;
  warned: boolean;
}

/** Keeps an agent connected to the right number of servers, and to the right ones: decides again whenever something happened. */
export class Upkeep {
  readonly #options: UpkeepOptions;
  readonly #reconnect: Reconnect;
  readonly #uplinks = new Set<Uplink>();
  /** Those that are up, or have reported. */
  readonly #links = new Set<Link>();
  /** The report of the link that ended last. */
  #lastReport: Report | undefined;
  /** The latest report of each hub. */
  #generations = new Map<string, number>();
  /** Those whose turn is next first. */
  #servers: readonly ConfiguredServer[];
  readonly #stopping = new AbortController();
  #complete = false;
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
    return [...this.#uplinks];
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

  get #stopped(): boolean {
    return this.#stopping.signal.aborted;
  }

  /** Does what is to do now. Call when something happened. */
  look(): void {
    if (this.#stopped) return;
    const { syncIntervalCap, events } = this.#options;
    const { wanted, complete, retire, connect, again } = decide(this.#known, this.#reconnect);
    this.#complete = complete;
    events.emit('server:known', wanted);
    for (const uplink of retire) uplink.retire();
    if (connect) this.#guarded(() => this.#attempt(connect))();
    this.#lookIn(Math.min(syncIntervalCap, again));
  }

  /** @param wait in milliseconds */
  #lookIn(wait: number): void {
    this.#cancel();
    if (this.#stopped) return;
    const look = this.#guarded(() => this.look());
    this.#cancel = this.#options.clock.after(Math.max(1, wait), look);
  }

  get #staying(): Uplink[] {
    return this.uplinks.filter(({ leaving }) => !leaving);
  }

  get #known(): Known<Uplink> {
    const sessions = this.#staying;
    const serverCount = this.#options.serverCount(sessions);
    const [membership, servers, complete] = [this.#membership, this.#servers, this.#complete];
    return { ...this.#options, sessions, membership, serverCount, servers, complete };
  }

  get #membership(): Membership {
    const reports = [...this.#links].flatMap(({ report }) => report ?? []);
    return membershipOf(reports, this.#lastReport, this.#now);
  }

  get #now(): number {
    return this.#options.clock.now();
  }

  async #attempt(target: Target): Promise<void> {
    const attempt = this.#reconnect.begin(target, this.#staying.length > 0);
    const link: Link = { place: target.place, ended: false, warned: false };
    try {
      const server = await this.#serverOf(attempt);
      link.place = formatDestination({ host: server.address, port: server.port });
      const uplink = await this.#options.connect(server, {
        membership: (message) => this.#hear(link, message),
        leave: () => this.#warned(link),
        timeout: attempt.timeout,
        signal: this.#stopping.signal,
      });
      link.since = this.#now;
      const refusal = this.#refusal(uplink, attempt);
      if (refusal === undefined) this.#adopt(uplink, link);
      else {
        this.#end(link);
        uplink.destroy(new Error(refusal));
        this.#missed(attempt);
      }
    } catch (error) {
      if (!this.#stopped) this.#failed(attempt, link.place, error as NodeJS.ErrnoException);
    } finally {
      this.#reconnect.end(attempt);
    }
    this.look();
  }

  async #serverOf({ place, configured, calm }: Attempt): Promise<ServerAddress> {
    if (!configured) return addressOf(place);
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

  #adopt(uplink: Uplink, link: Link): void {
    const { serverId, protocol, plane, server } = uplink;
    const { events } = this.#options;
    const since = this.#now;
    const address = link.place;
    this.#uplinks.add(uplink);
    this.#links.add(link);
    if (plane !== '') link.report ??= silent(since);
    this.#reconnect.reached();
    events.emit('server:open', { address, serverId, protocol });
    const closed = (reason: Error | undefined) => {
      this.#end(link);
      this.#uplinks.delete(uplink);
      if (!uplink.leaving) this.#reconnect.lost(address, this.#now - since, this.#staying.length > 0);
      if (reason && !uplink.leaving && !this.#stopped) events.emit('server:failure', address, 'connected', reason);
      events.emit('server:close', { address, serverId }, reason?.message ?? 'closed');
      this.#options.closed(server);
      this.look();
    };
    void uplink.closed.then(this.#guarded(closed));
  }

  #end(link: Link): void {
    link.ended = true;
    this.#links.delete(link);
    if (link.report && link.report.hubs.size > 0) this.#lastReport = link.report;
  }

  #missed(attempt: Attempt): void {
    // Within a plane, an agent hears of every new hub.
    const mayBeSlow = isInPlane(this.#staying);
    const missed = attempt.better || attempt.configured ? [attempt] : this.#servers;
    for (const target of missed) this.#reconnect.missed(target, mayBeSlow);
  }

  #failed(attempt: Attempt, place: string, error: NodeJS.ErrnoException): void {
    this.#reconnect.failed(attempt, place, this.#staying.length > 0, error.code === 'ECONNREFUSED');
    this.#options.events.emit('server:failure', place, 'connecting', error);
  }

  /** Call when a server says that it is leaving. */
  #warned(link: Link): void {
    if (link.warned) return;
    link.warned = true;
    this.#reconnect.warned(link.place, this.#now - (link.since ?? this.#now));
    this.look();
  }

  /** Takes a hub's report. A hub that started is worth an attempt at once, but not by all agents at the same moment. */
  #hear(link: Link, message: MembershipMessage): void {
    if (!link.ended) {
      link.report = updated(link.report, message, this.#now);
      this.#links.add(link);
      const { hubs } = this.#membership;
      const started = hubs.filter(({ hubId, generation }) => generation > (this.#generations.get(hubId) ?? -1));
      // Only for hubs that are listed: others are forgotten.
      this.#generations = new Map(hubs.map(({ hubId, generation }) => [hubId, generation]));
      if (started.length > 0) this.#reconnect.started(started.flatMap((hub) => placeOf(hub) ?? []));
    }
    this.look();
  }
}
