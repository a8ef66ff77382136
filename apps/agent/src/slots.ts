import { type Clock, getOrPut, LruMap } from '@isthmus/runtime';
import type { HubMember } from '@isthmus/transport';
import { formatDestination, parseDestination } from '@isthmus/tunnel';
import { AGENT } from './defaults.ts';
import type { Report } from './membership.ts';
import type { UpkeepOptions } from './upkeep.ts';
import type { ServerAddress, Uplink } from './uplink.ts';

/** Of a slot that may be tried now. */
const FREE = { failures: 0, failedAt: -1, from: 0 };

/**
 * A hub, an address or a configured server that the agent has heard of, and its back-off. A configured server is one server, a load balancer before
 * several, or a name that resolves to all of them: it may lead to any hub.
 */
export class Slot {
  /** `host:port`; of a hub that agents reach only through a configured server, its id. */
  readonly place: string;
  /** Of a configured server, as it is configured. */
  readonly host: string | undefined;
  /** Of a configured server, when it last resolved. They take turns. */
  addresses: readonly Slot[] = [];
  /** Of an address that had its turn: the later, the greater. */
  tried = 0;
  /** When to move there, for a better hub. Unset before it is drawn. */
  moveAt: number | undefined;
  /** `failures` in a row make pauses longer. Times are the clock's: when it last failed or lost a session, and when it may be tried. */
  #pause = FREE;

  constructor(place: string, host?: string) {
    this.place = place;
    this.host = host;
  }

  /** When it, and one of its addresses, may be tried. */
  get from(): number {
    return Math.max(this.#pause.from, least(this.addresses.map(({ from }) => from)));
  }

  /** When it failed, or when the first of its addresses did, if all have. */
  get failedAt(): number {
    return Math.max(this.#pause.failedAt, least(this.addresses.map(({ failedAt }) => failedAt)));
  }

  /** Whether it lost a session that was stable, and did not fail since. */
  get wasLost(): boolean {
    return this.#pause !== FREE && this.#pause.failures === 0;
  }

  /** The pause doubles with each failure, from `first` milliseconds to `cap`. Half of it is random. */
  failed(clock: Clock, first: number, cap: number, from = clock.now()): void {
    const { failures } = this.#pause;
    const ms = Math.min(Math.max(first, cap), first * 2 ** failures) * (0.5 + clock.random() / 2);
    this.#pause = { failures: failures + 1, failedAt: clock.now(), from: from + ms };
  }

  /** Call when a stable session was lost. */
  lost(now: number): void {
    this.#pause = { failures: 0, failedAt: now, from: now };
  }

  forget(): void {
    this.#pause = FREE;
    this.moveAt = undefined;
  }
}

/** Earlier than any time of a clock for an empty list. */
const least = (times: readonly number[]) => (times.length === 0 ? FREE.failedAt : Math.min(...times));

/** Returns the addresses of a name. */
export type Resolve = (host: string, signal: AbortSignal) => Promise<readonly string[]>;

/** Where to connect. */
export interface Target {
  readonly slot: Slot;
  /** The configured server that leads there; it may be the slot itself. */
  readonly via?: Slot | undefined;
  /** The only hub that is wanted: one that is better than a connected one. */
  readonly better?: HubMember;
}

/** A target, and when it may be tried. */
export type Choice = Target & { readonly from: number };

/** What connects a slot: an attempt while it has no `uplink`, then a session, which is going once its `uplink` is leaving. */
export interface Link extends Target {
  /** Its address, once that is known. */
  at: Slot;
  /** When the attempt began, then when the session did. */
  since: number;
  /** How long the attempt took, in milliseconds. */
  took?: number;
  /** Whether the attempt began while there was a session. */
  readonly calm: boolean;
  /** How long the attempt may take, in milliseconds. */
  readonly timeout: number;
  /** What its hub said last. */
  report?: Report;
  uplink?: Uplink;
}

/** Why to connect. */
export interface Need {
  /** How many sessions are. */
  readonly missing: number;
  /** Whether there is any session. */
  readonly connected: boolean;
  /** Whether other agents have seen the reason to connect too. */
  readonly herd: boolean;
  /** Whether what is known of the hubs may be outdated. */
  readonly configuredFirst: boolean;
}

type Options = Pick<
  UpkeepOptions,
  'server' | 'resolve' | 'syncInterval' | 'syncIntervalCap' | 'rebalanceTime' | 'clock'
>;

/**
 * What an agent has heard of, what connects it, and the one policy of connecting again. Without any session, an agent tries one address after
 * another at once. Otherwise it waits a random time, because a whole herd of agents has seen the same event. Only what failed has to wait, ever
 * longer.
 */
export class Slots {
  readonly links = new Set<Link>();
  readonly #options: Options;
  /** The oldest is forgotten first: a name may keep resolving to new addresses. */
  readonly #slots = new LruMap<string, Slot>(AGENT.maxKnown);
  /** Those whose turn is next first. */
  #servers: readonly Slot[];
  #tries = 0;
  /** When to replace a missing session, and within what time that is drawn. */
  #from: number | undefined;
  #spreadMs: number = AGENT.herdSpreadMs;
  /** Failed attempts since a session began, or the last one was lost, and how many of them took too long. */
  #failures = 0;
  #late = 0;

  constructor(options: Options) {
    const { hosts, port } = options.server;
    this.#options = options;
    // Agents that are configured alike do not all begin with the same one.
    const first = Math.floor(options.clock.random() * hosts.length);
    const servers = [...hosts.slice(first), ...hosts.slice(0, first)];
    this.#servers = servers.map((host) => new Slot(formatDestination({ host, port }), host));
  }

  get connecting(): Link[] {
    return [...this.links].filter(({ uplink }) => !uplink);
  }

  /** The slot of this address, or of a hub by its id. */
  at(place: string): Slot {
    return getOrPut(this.#slots, place, () => new Slot(place));
  }

  #of({ hubId, address }: HubMember): Slot {
    return this.at(address === '' ? hubId : formatDestination(parseDestination(address)));
  }

  /**
   * Returns where to connect for a missing session, best first: hubs in the order that they are given, those where a session was lost after the
   * others, then the configured servers. For an agent without a session, all that failed or was lost comes last, and the longest ago first:
   * nothing is left out, however many there are. A hub that hangs gets no second attempt; a load balancer that led to it may lead to another
   * next time.
   */
  toFill(hubs: readonly HubMember[], { missing, connected, herd, configuredFirst }: Need): Choice[] {
    const now = this.#now;
    // One that lost its last session meanwhile waits for no calm attempt.
    const counted = this.connecting.filter(({ calm }) => connected || !calm);
    const doubled = AGENT.youngAttemptMs * 2 ** Math.max(0, counted.length - 1);
    const young = counted.filter(({ since }) => now - since < (connected ? AGENT.patientAttemptMs : doubled));
    this.#from ??= now + (herd ? this.#options.clock.random() * this.#spreadMs : 0);
    if (young.length >= Math.max(1, missing) || counted.length >= AGENT.maxAttempts) return [];
    const turn = this.#from;
    const engaged = this.connecting.filter((link) => !link.via || young.includes(link)).map(({ slot }) => slot);
    const known = hubs
      .filter(({ address }) => address !== '')
      .map((hub) => ({ slot: this.#of(hub), via: undefined }))
      .sort((a, b) => Number(a.slot.wasLost) - Number(b.slot.wasLost));
    const servers = this.#servers.map((slot) => ({ slot, via: slot }));
    const rank = ({ slot, via }: Target) => (configuredFirst && via ? FREE.failedAt : slot.failedAt);
    return (configuredFirst ? [...servers, ...known] : [...known, ...servers])
      .filter(({ slot }) => !engaged.includes(slot))
      .sort((a, b) => (connected ? 0 : rank(a) - rank(b)))
      .map((target) => ({ ...target, from: Math.max(turn, target.slot.from) }));
  }

  /**
   * Returns the better hubs to move to, best first. Each has a time that is drawn once: a constant part of all agents moves each second.
   * @param busy whether the sessions to displace carry tunnels
   */
  toMove(better: readonly HubMember[], busy: boolean): Choice[] {
    const { clock, rebalanceTime } = this.#options;
    const choices = better.map((hub) => {
      const slot = this.#of(hub);
      const via = hub.address === '' ? this.#servers[0] : undefined;
      slot.moveAt ??= this.#now + clock.random() * rebalanceTime;
      const moveAt = slot.moveAt + (busy ? rebalanceTime * AGENT.busyPart : 0);
      return { slot, via, better: hub, from: Math.max(moveAt, slot.from, via?.from ?? 0) };
    });
    const chosen = new Set(choices.map(({ slot }) => slot));
    for (const slot of this.#slots.values()) if (!chosen.has(slot)) slot.moveAt = undefined;
    return choices;
  }

  begin(target: Target, calm: boolean): Link {
    const urgent = Math.min(AGENT.calmTimeoutMs, AGENT.urgentTimeoutMs * 2 ** this.#late);
    const timeout = calm ? AGENT.calmTimeoutMs : urgent;
    const link = { ...target, at: target.via ?? target.slot, since: this.#now, calm, timeout };
    this.links.add(link);
    return link;
  }

  /**
   * Returns the address of an attempt. Those of a configured server take turns. Those that have to wait come last; for an agent without a session,
   * those that failed last do.
   */
  async addressOf(link: Link): Promise<ServerAddress> {
    const { via, calm } = link;
    if (via?.host !== undefined) {
      this.#servers = [...this.#servers.filter((other) => other !== via), via];
      await this.#lookUp(via, via.host);
      const rank = ({ from, failedAt }: Slot) => (calm ? Number(from > this.#now) : failedAt);
      const inTurn = via.addresses.toSorted((a, b) => rank(a) - rank(b) || a.tried - b.tried);
      link.at = inTurn[0] as Slot;
      link.at.tried = ++this.#tries;
    }
    const { host, port } = parseDestination(link.at.place);
    return { address: host, port, ...(via?.host !== undefined && { name: via.host }) };
  }

  /** While the name does not resolve, its last addresses are used. */
  async #lookUp(server: Slot, host: string): Promise<void> {
    const { clock, resolve } = this.#options;
    const { port } = this.#options.server;
    const giveUp = new AbortController();
    const late = `${host} did not resolve within ${AGENT.lookupTimeoutMs / 1000} s`;
    const cancel = clock.after(AGENT.lookupTimeoutMs, () => giveUp.abort(new Error(late)));
    try {
      const found = await resolve(host, giveUp.signal);
      if (found.length === 0) throw new Error(`${host} resolves to no address`);
      server.addresses = found.map((address) => this.at(formatDestination({ host: address, port })));
    } catch (error) {
      if (server.addresses.length === 0) throw error;
    } finally {
      cancel();
    }
  }

  /**
   * Call when an attempt failed.
   * @param refused whether nobody listened there
   */
  failed(link: Link, connected: boolean, refused = false): void {
    if (link.better) {
      this.missed(link, true);
      return;
    }
    this.#pause(link.at, !connected, refused && !connected ? AGENT.refusedCapMs : Number.POSITIVE_INFINITY);
    if (this.#now - link.since >= link.timeout - AGENT.timerEarlyMs) this.#late++;
    if (++this.#failures > AGENT.freeFailures) this.#from = this.#now + AGENT.failureGapMs;
  }

  /**
   * Call when an attempt led to a server that is connected already, or not to the better hub that was wanted.
   * @param inPlane whether the agent would also hear of a new server
   */
  missed({ slot, better }: Target, inPlane: boolean): void {
    const { syncInterval, syncIntervalCap, clock } = this.#options;
    slot.failed(clock, syncInterval, inPlane ? AGENT.missedCapMs : syncIntervalCap);
    // Its turn came: from now on only its pause counts.
    if (better) slot.moveAt = Number.NEGATIVE_INFINITY;
  }

  /** Call when nothing is missing: the next need draws a time of its own. */
  anew(): void {
    this.#from = undefined;
    this.#spreadMs = AGENT.herdSpreadMs;
  }

  /** Call when a session began. What failed there before counts until a session was stable. */
  reached(slot: Slot): void {
    if (slot.wasLost) slot.forget();
    this.#failures = 0;
    this.#late = 0;
    this.started([]);
  }

  /**
   * Call when a session was lost, or its server says that it leaves. One that was unstable counts as a failure at its start. For servers that
   * leave, `briefMs` is enough: hubs behind one address may be replaced quickly.
   */
  lost(link: Pick<Link, 'at' | 'since' | 'took' | 'uplink'>, connected: boolean, leaves = false): void {
    const { at, since, took = 0, uplink } = link;
    const lived = this.#now - since;
    this.anew();
    // One that leaves waits for its agents, though not for long.
    if (!leaves) this.#spreadMs = Math.max(AGENT.herdSpreadMs * (uplink?.restSeconds ?? 1), took);
    if (!connected) {
      this.reached(at);
      // Everything else is worth a try now.
      if (lived >= AGENT.briefMs) for (const slot of this.#slots.values()) if (slot !== at) slot.forget();
    }
    if (lived >= (leaves ? AGENT.briefMs : AGENT.stableMs)) at.lost(this.#now);
    else this.#pause(at, !connected && leaves, Number.POSITIVE_INFINITY, since);
  }

  /** Call when hubs started: what is known of them, and where configured servers lead, is outdated. */
  started(hubs: readonly HubMember[]): void {
    for (const slot of [...hubs.map((hub) => this.#of(hub)), ...this.#servers]) slot.forget();
    this.#from = undefined;
  }

  get #now(): number {
    return this.#options.clock.now();
  }

  /** @param urgent whether to begin with a short pause: a load balancer may lead elsewhere, or the server start together with the agent */
  #pause(slot: Slot, urgent: boolean, cap: number, from?: number): void {
    const { syncInterval, syncIntervalCap, clock } = this.#options;
    const first = urgent ? Math.min(syncInterval, AGENT.firstPauseMs) : syncInterval;
    slot.failed(clock, first, Math.min(cap, syncIntervalCap), from);
  }
}
