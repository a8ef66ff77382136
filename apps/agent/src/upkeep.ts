import { createHash } from 'node:crypto';
import { type Clock, guarding } from '@isthmus/runtime';
import { type HubMember, type MembershipMessage, TRANSPORT } from '@isthmus/transport';
import { formatDestination, type PlaneEvents } from '@isthmus/tunnel';
import type { AgentOptions } from './agent.ts';
import { AGENT } from './defaults.ts';
import {
  type Attempt,
  addressOf,
  ConfiguredServer,
  placeOf,
  Reconnect,
  type Resolve,
  rank,
  type Target,
} from './reconnect.ts';
import type { ServerAddress, Uplink, UplinkOptions } from './uplink.ts';

/** What one link's hub reported. */
export interface Report {
  readonly hubs: ReadonlyMap<string, HubMember>;
  /** Whether the registry answers that hub. Unset until it has reported. */
  readonly current?: boolean;
  /** When it expires unless it is renewed. */
  readonly until: number;
}

/** What the reports of all links together say. */
export interface Membership {
  /** All hubs whose reports have not expired. */
  readonly hubs: readonly HubMember[];
  /**
   * Hubs that are worth an attempt: `hubs`, or else those of the last report, however old. A wrong address costs an attempt, and the
   * configured server alone may be the one that died.
   */
  readonly candidates: readonly HubMember[];
  /** Whether `candidates` are an expired report. */
  readonly stale: boolean;
  /** Whether the registry answers every hub that this agent is connected to. Gateways then learn of new sessions. */
  readonly current: boolean;
  /** Whether a hub reported that the registry does not answer it, or reports nothing any longer. */
  readonly away: boolean;
}

/** The report of a hub that has not reported yet. */
export function silent(now: number): Report {
  return { hubs: new Map(), until: now + TRANSPORT.membershipTtlMs };
}

/** Returns a report, if there was one, with a later message. Hubs beyond the limit are ignored. */
export function updated(report: Report | undefined, message: MembershipMessage, now: number): Report {
  const whole = message.type === 'membership';
  const hubs = new Map(whole ? [] : report?.hubs);
  for (const hubId of whole ? [] : message.gone) hubs.delete(hubId);
  for (const hub of whole ? message.hubs : message.changed)
    if (hubs.size < AGENT.maxKnown || hubs.has(hub.hubId)) hubs.set(hub.hubId, hub);
  return { hubs, current: message.current, until: now + TRANSPORT.membershipTtlMs };
}

/** @param last the report of the link that ended last, for when no link has reported any hub */
export function membershipOf(reports: readonly Report[], last: Report | undefined, now: number): Membership {
  const holds = ({ until }: Report) => now < until;
  const hubs = merged(reports.filter(holds));
  const reported = reports.filter((report) => report.hubs.size > 0);
  const latest = reported.length === 0 && last ? [last] : reported;
  const stale = hubs.length === 0 && !latest.some(holds);
  // That a hub drained expires like everything else: it may have restarted.
  const known = () => merged(latest).map((hub) => (stale ? { ...hub, draining: false } : hub));
  return {
    hubs,
    candidates: hubs.length > 0 ? hubs : known(),
    stale,
    current: reports.length > 0 && reports.every((report) => report.current === true && holds(report)),
    away: reports.some((report) => report.current === false || !holds(report)),
  };
}

/** Of two reports about a hub, the later generation counts; within a generation, draining counts. */
function merged(reports: readonly Report[]): HubMember[] {
  const hubs = new Map<string, HubMember>();
  for (const hub of reports.flatMap((report) => [...report.hubs.values()])) {
    const known = hubs.get(hub.hubId);
    const later = !known || hub.generation > known.generation;
    if (later || (hub.generation === known.generation && hub.draining)) hubs.set(hub.hubId, hub);
  }
  return [...hubs.values()];
}

/**
 * Returns the hubs that accept agents, best first for this agent: its own zone, then by rendezvous hashing. So agents spread evenly,
 * and only the agents of a hub move when it starts or stops.
 */
export function ranking(
  { agentId, zone }: { readonly agentId: string; readonly zone: string },
  hubs: readonly HubMember[],
): HubMember[] {
  return hubs
    .filter(({ draining }) => !draining)
    .map((hub) => ({ hub, near: Number(hub.zone === zone), weight: weight(agentId, hub) }))
    .sort((a, b) => b.near - a.near || b.weight - a.weight)
    .map(({ hub }) => hub);
}

/** Agents need the order of their hubs at every event, and a hub's report stays the same object until the next one. */
const weights = new WeakMap<HubMember, { readonly agentId: string; readonly weight: number }>();

function weight(agentId: string, hub: HubMember): number {
  const known = weights.get(hub);
  if (known?.agentId === agentId) return known.weight;
  const digest = createHash('sha256').update(agentId).update('\0').update(hub.hubId).digest();
  const weight = digest.readUIntBE(0, 6);
  weights.set(hub, { agentId, weight });
  return weight;
}

/** The part of a session that matters here. */
export type Held = Pick<Uplink, 'serverId' | 'plane' | 'open'>;

/** What an agent knows when it decides whether, and where, to connect next. */
interface Known<U extends Held = Held> extends Pick<AgentOptions, 'agentId' | 'zone' | 'sessionCount' | 'syncForever'> {
  /** Sessions that are up and stay. */
  readonly sessions: readonly U[];
  /** How many servers without a plane there are, by the last one's count or by leases. */
  readonly serverCount: number;
  readonly membership: Membership;
  /** Those whose turn is next first. */
  readonly servers: readonly ConfiguredServer[];
  /** Whether it once had as many sessions as it wanted. */
  readonly complete: boolean;
}

interface Assessment<U extends Held = Held> {
  /** How many distinct servers to be connected to. */
  readonly wanted: number;
  /** Hubs of the plane that accept agents and are not connected, best first. */
  readonly candidates: readonly HubMember[];
  /** Those of them that should be connected, in place of `displaced`. */
  readonly better: readonly HubMember[];
  /** Sessions with hubs of the plane that should not be connected: first those without tunnels, then the worst. */
  readonly displaced: readonly U[];
}

/** What to do now. */
interface Decision<U extends Held = Held> {
  readonly wanted: number;
  readonly complete: boolean;
  /** Leave these: better hubs have replaced them, and gateways can know of those. */
  readonly retire: readonly U[];
  /** Start connecting there. */
  readonly connect?: Target;
  /** When to decide again unless something happens, in milliseconds. */
  readonly again: number;
}

/** Decides what is missing or misplaced now, and when the next look is worthwhile. Random times are drawn by `reconnect`. */
function decide<U extends Held>(known: Known<U>, reconnect: Reconnect): Decision<U> {
  const { wanted, candidates, better, displaced } = assess(known);
  const { sessions, membership, syncForever } = known;
  const surplus = membership.current ? Math.max(0, sessions.length - wanted) : 0;
  const retire = displaced.slice(0, surplus);
  const staying = sessions.length - retire.length;
  const missing = wanted - staying;
  const complete = known.complete || (staying > 0 && missing <= 0);
  const decided = { wanted, complete, retire };
  // Within a plane, an agent hears of every hub.
  const seeks = missing <= 0 && syncForever && !isInPlane(sessions);
  if (missing > 0 || seeks) {
    reconnect.plan([]);
    return { ...decided, ...fill({ ...known, complete }, reconnect, missing, seeks ? [] : candidates) };
  }
  reconnect.anew();
  return { ...decided, ...move(known, reconnect, better, displaced.slice(surplus), -missing) };
}

type Step = Pick<Decision, 'connect' | 'again'>;

/** Connects to one more server. */
function fill(known: Known, reconnect: Reconnect, missing: number, hubs: readonly HubMember[]): Step {
  const { sessions, servers, membership, complete } = known;
  const connected = sessions.length > 0;
  // Each server without a plane serves its own callers, who wait for an agent that starts.
  const alone = !connected || (!complete && !isInPlane(sessions));
  const again = reconnect.wait(missing, connected, alone);
  if (again > 0) return { again };
  // Hubs of an old report may be many and all gone.
  const configuredFirst = membership.stale && reconnect.pending.every(({ configured }) => !configured);
  const targets = rank(hubs, servers, reconnect, { connected, configuredFirst });
  const connect = targets.find(({ wait }) => wait <= 0);
  return connect ? { connect, again: AGENT.youngAttemptMs } : { again: Math.min(...targets.map(({ wait }) => wait)) };
}

/** Connects to a better hub whose time has come. */
function move(
  { membership: { away, current }, servers }: Known,
  reconnect: Reconnect,
  better: readonly HubMember[],
  displaced: readonly Held[],
  surplus: number,
): Step {
  // Times that were drawn while nothing may move would all have passed when something may.
  reconnect.plan(displaced.length > 0 && !away ? better : []);
  if (displaced.length === 0 || !current) return { again: Number.POSITIVE_INFINITY };
  const busy = displaced.every(({ open }) => open > 0);
  const hub = better.find((hub) => reconnect.moveWait(hub, busy) <= 0);
  if (!hub)
    return { again: busy ? AGENT.lookEveryMs : Math.min(...better.map((hub) => reconnect.moveWait(hub, busy))) };
  // One after the other: the last one is done when what it displaced is leaving.
  if (reconnect.pending.length > 0 || surplus > 0) return { again: AGENT.lookEveryMs };
  const place = placeOf(hub);
  const [configured] = servers as [ConfiguredServer];
  const connect = { ...(place === undefined ? { place: configured.place, configured } : { place }), better: hub };
  const again = place === undefined ? configured.wait(reconnect, false) : reconnect.addresses.wait(place);
  return again > 0 ? { again } : { connect, again: AGENT.youngAttemptMs };
}

/**
 * Compares an agent's sessions with what they should be. Within a plane, any hub reaches all gateways, so a few hubs are enough: the
 * first by `ranking`. Servers without a plane must all be connected.
 */
export function assess<U extends Held>(known: Omit<Known<U>, 'servers' | 'complete' | 'syncForever'>): Assessment<U> {
  const { sessionCount, serverCount, sessions, membership } = known;
  const ranked = ranking(known, membership.hubs);
  const connected = new Set(sessions.map(({ serverId }) => serverId));
  const all = membership.candidates === membership.hubs ? ranked : ranking(known, membership.candidates);
  const candidates = all.filter(({ hubId }) => !connected.has(hubId));
  if (!isInPlane(sessions)) return { wanted: Math.max(1, serverCount), candidates, better: [], displaced: [] };
  const live = Math.max(1, ranked.length);
  const wanted = sessionCount === 'all' ? live : Math.min(sessionCount, live);
  const rank = new Map(ranked.map(({ hubId }, index) => [hubId, index]));
  // A hub that no hub lists has rank 0: its link is alive, which outranks a registry that does not know it.
  const rankOf = ({ serverId }: Held) => rank.get(serverId) ?? 0;
  return {
    wanted,
    candidates,
    better: ranked.slice(0, wanted).filter(({ hubId }) => !connected.has(hubId)),
    displaced: sessions
      .filter((session) => session.plane !== '' && rankOf(session) >= wanted)
      .sort((a, b) => Number(a.open > 0) - Number(b.open > 0) || rankOf(b) - rankOf(a)),
  };
}

function isInPlane(sessions: readonly Held[]): boolean {
  return sessions.some(({ plane }) => plane !== '');
}

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
