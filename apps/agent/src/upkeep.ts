import { type Clock, guarding } from '@isthmus/runtime';
import type { MembershipMessage } from '@isthmus/transport';
import type { PlaneEvents } from '@isthmus/tunnel';
import type { AgentOptions } from './agent.ts';
import { AGENT } from './defaults.ts';
import {
  assess,
  isInPlane,
  type Known,
  type KnownHubs,
  membershipOf,
  type Report,
  silent,
  updated,
} from './membership.ts';
import { type Choice, type Link, type Resolve, Slots, type Target } from './slots.ts';
import type { ServerAddress, Uplink, UplinkOptions } from './uplink.ts';

export interface UpkeepOptions
  extends Pick<AgentOptions, 'agentId' | 'zone' | 'sessionCount' | 'server' | 'syncForever'>,
    Pick<AgentOptions, 'syncInterval' | 'syncIntervalCap' | 'rebalanceTime'> {
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

/** Keeps an agent connected to the right number of servers, and to the right ones: looks again whenever something happened. */
export class Upkeep {
  readonly #options: UpkeepOptions;
  readonly #slots: Slots;
  /** The last report of a link that has ended, and the plane of its hub. */
  #last: { readonly report: Report; readonly plane: string } | undefined;
  readonly #stopping = new AbortController();
  #cancel = () => {};
  /** After a defect, check again, because nothing else may trigger it. */
  readonly #guarded = guarding((error) => {
    this.#lookIn(this.#options.syncIntervalCap);
    this.#options.events.emit('fault', 'upkeep', '', error);
  });

  constructor(options: UpkeepOptions) {
    this.#options = options;
    this.#slots = new Slots(options);
    this.look();
  }

  /** Includes those that are leaving. */
  get uplinks(): readonly Uplink[] {
    return [...this.#slots.links].flatMap(({ uplink }) => uplink ?? []);
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
    const [replaced, others] = [displaced.slice(0, surplus), displaced.slice(surplus)];
    for (const uplink of replaced) uplink.leave();
    const missing = wanted - (sessions.length - replaced.length);
    // Within a plane, an agent hears of every hub.
    const seeks = missing <= 0 && this.#options.syncForever && !isInPlane(sessions);
    // Times to move that were drawn while nothing may move would all have passed when something may.
    const mayMove = missing <= 0 && !seeks && others.length > 0 && membership.registry !== 'away';
    const busy = others.every(({ open }) => open > 0);
    const moves = this.#slots.toMove(mayMove ? better : [], busy);
    if (missing > 0 || seeks) {
      const connected = sessions.length > 0;
      // Each server without a plane serves its own callers, who wait for their agents.
      const herd = isInPlane(sessions);
      // Hubs of an old report may be many and all gone.
      const configuredFirst = membership.stale && this.#slots.connecting.every(({ via }) => !via);
      const hubs = seeks ? [] : candidates;
      this.#connect(this.#slots.toFill(hubs, { missing, connected, herd, configuredFirst }));
    } else {
      this.#slots.anew();
      // One after the other: the last one is done when what it displaced is leaving.
      const settled = membership.registry === 'answers' && missing === 0 && this.#slots.connecting.length === 0;
      this.#connect(settled ? moves : [], moves.length > 0 && busy ? AGENT.lookEveryMs : undefined);
    }
  }

  /** Connects to the best whose time has come, and looks again when that of another comes. @param most in milliseconds */
  #connect(choices: readonly Choice[], most = this.#options.syncIntervalCap): void {
    const now = this.#now;
    const next = choices.find(({ from }) => from <= now);
    if (next) this.#guarded(() => this.#attempt(next))();
    const again = this.#slots.connecting.length > 0 ? AGENT.youngAttemptMs : most;
    const soonest = next ? again : Math.min(again, ...choices.map(({ from }) => from - now));
    this.#lookIn(Math.min(this.#options.syncIntervalCap, soonest));
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
    const serverCount = this.#options.serverCount(sessions);
    return { ...this.#options, sessions, membership: this.#membership, serverCount };
  }

  get #membership(): KnownHubs {
    // What an attempt hears before it is adopted may come from a stranger.
    const reports = [...this.#slots.links].flatMap(({ report, uplink }) => (uplink && report) ?? []);
    return membershipOf(reports, this.#last?.report, this.#now);
  }

  get #now(): number {
    return this.#options.clock.now();
  }

  async #attempt(target: Target): Promise<void> {
    const link = this.#slots.begin(target, this.#connected);
    try {
      const uplink = await this.#options.connect(await this.#slots.addressOf(link), {
        membership: (message) => this.#hear(link, message),
        leave: () => {
          this.#slots.lost(link, this.#connected, true);
          this.look();
        },
        timeout: link.timeout,
        signal: this.#stopping.signal,
      });
      const stranger = this.#strange(uplink, link);
      const refusal = stranger ?? this.#refusal(uplink, link);
      if (!refusal) this.#adopt(uplink, link);
      else {
        uplink.destroy(refusal);
        if (stranger) throw stranger;
        this.#slots.missed(link, isInPlane(this.#staying));
        this.#slots.links.delete(link);
      }
    } catch (error) {
      this.#slots.links.delete(link);
      if (!this.#stopped) {
        this.#slots.failed(link, this.#connected, (error as NodeJS.ErrnoException).code === 'ECONNREFUSED');
        this.#options.events.emit('server:failure', link.at.place, 'connecting', error as Error);
      }
    }
    this.look();
  }

  /** Of two connections to a server the older one stays, as servers expect it. */
  #refusal({ serverId }: Uplink, { better }: Link): Error | undefined {
    if (this.#stopped) return new Error('agent stops');
    // A server that leaves may return under its id while its last tunnels still run.
    if (this.#staying.some((other) => other.serverId === serverId)) return new Error('server is connected already');
    return better && serverId !== better.hubId ? new Error(`hub ${better.hubId} was wanted`) : undefined;
  }

  /** The address that a hub reported may lead to a server of another plane, whose callers are not those of this agent. */
  #strange({ serverId, plane }: Uplink, { via }: Link): Error | undefined {
    const planes = [...this.uplinks, this.#last].flatMap((known) => known?.plane || []);
    if (via || planes.length === 0 || planes.includes(plane)) return undefined;
    const whose = plane === '' ? 'no plane' : `plane ${plane}`;
    return new Error(`server ${serverId} of ${whose} answers where a hub of plane ${planes[0]} should`);
  }

  #adopt(uplink: Uplink, link: Link): void {
    const { serverId, protocol, plane, server } = uplink;
    const { events } = this.#options;
    const address = link.at.place;
    link.took = this.#now - link.since;
    link.since = this.#now;
    link.uplink = uplink;
    if (plane !== '') link.report ??= silent(link.since);
    this.#slots.reached(link.at);
    events.emit('server:open', { address, serverId, protocol });
    const closed = (reason: Error | undefined) => {
      this.#slots.links.delete(link);
      if (link.report && link.report.hubs.size > 0) this.#last = { report: link.report, plane };
      if (!uplink.leaving) this.#slots.lost(link, this.#connected);
      if (reason && !uplink.leaving && !this.#stopped) events.emit('server:failure', address, 'connected', reason);
      events.emit('server:close', { address, serverId }, reason?.message ?? 'closed');
      this.#options.closed(server);
      this.look();
    };
    void uplink.closed.then(this.#guarded(closed));
  }

  /** Takes a hub's report. A hub that started is worth an attempt at once, but not by all agents at the same moment. */
  #hear(link: Link, message: MembershipMessage): void {
    if (this.#slots.links.has(link)) {
      const known = new Map(this.#membership.hubs.map(({ hubId, generation }) => [hubId, generation]));
      link.report = updated(link.report, message, this.#now);
      const started = this.#membership.hubs.filter(({ hubId, generation }) => generation > (known.get(hubId) ?? -1));
      if (started.length > 0) this.#slots.started(started);
    }
    this.look();
  }
}
