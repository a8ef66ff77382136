import { type Clock, within } from '@isthmus/runtime';
import type { HubMember } from '@isthmus/transport';
import { formatDestination, parseDestination } from '@isthmus/tunnel';
import { AGENT } from './defaults.ts';
import type { ServerAddress } from './uplink.ts';

/** Where to connect. */
export interface Target {
  /** `host:port` of a hub, or the name and port of a configured server, which may lead to any hub. */
  readonly place: string;
  readonly configured?: ConfiguredServer;
  /** The only hub that is wanted. */
  readonly better?: HubMember;
}

/** Returns the addresses of a name. */
export type Resolve = (host: string, signal: AbortSignal) => Promise<readonly string[]>;

/** One server, a load balancer before several, or a name that resolves to all of them. */
export class ConfiguredServer {
  readonly place: string;
  readonly #host: string;
  readonly #port: number;
  readonly #resolve: Resolve;
  /** Its addresses, with the port. */
  #places: readonly string[] = [];
  #turn = 0;

  constructor(host: string, port: number, resolve: Resolve) {
    this.place = formatDestination({ host, port });
    this.#host = host;
    this.#port = port;
    this.#resolve = resolve;
  }

  /** Milliseconds until it, or the first of its addresses, may be tried. */
  wait({ addresses, misses }: Reconnect): number {
    const first = Math.min(...this.#places.map((place) => addresses.wait(place)));
    return Math.max(addresses.wait(this.place), misses.wait(this.place), Number.isFinite(first) ? first : 0);
  }

  /** When it did not resolve, or when the first of its addresses failed, if all have. NEVER otherwise. */
  failedAt({ addresses }: Reconnect): number {
    const first = Math.min(...this.#places.map((place) => addresses.failedAt(place)));
    return Math.max(addresses.failedAt(this.place), Number.isFinite(first) ? first : NEVER);
  }

  /** Its addresses take turns. Those that have to wait come last; for an agent without a session, those that failed last do. */
  async next({ addresses }: Reconnect, connected: boolean): Promise<ServerAddress> {
    this.#places = await this.#lookup();
    const rank = (place: string) => (connected ? Number(addresses.wait(place) > 0) : addresses.failedAt(place));
    const turn = this.#turn++ % this.#places.length;
    const inTurn = [...this.#places.slice(turn), ...this.#places.slice(0, turn)];
    const [place] = inTurn.sort((a, b) => rank(a) - rank(b)) as [string];
    return { ...serverAddressOf(place), name: this.#host };
  }

  /** While the name does not resolve, its last addresses are used. */
  async #lookup(): Promise<readonly string[]> {
    const giveUp = new AbortController();
    try {
      const found = this.#resolve(this.#host, giveUp.signal);
      if (!(await within(found, AGENT.lookupTimeoutMs))) {
        giveUp.abort();
        throw new Error(`${this.#host} did not resolve within ${AGENT.lookupTimeoutMs / 1000} s`);
      }
      const places = (await found).map((host) => formatDestination({ host, port: this.#port }));
      if (places.length === 0) throw new Error(`${this.#host} resolves to no address`);
      return places;
    } catch (error) {
      if (this.#places.length > 0) return this.#places;
      throw error;
    }
  }
}

/** Undefined for a hub that agents reach only through a configured server. */
export function hubPlaceOf({ address }: HubMember): string | undefined {
  return address === '' ? undefined : formatDestination(parseDestination(address));
}

export function serverAddressOf(place: string): ServerAddress {
  const { host, port } = parseDestination(place);
  return { address: host, port };
}

/** Earlier than any time of a clock. */
const NEVER = -1;

interface Pause {
  /** Each makes the next pause longer. 0 where a session was lost that was stable. */
  readonly failures: number;
  /** When it last failed, or was lost. */
  readonly at: number;
  readonly until: number;
}

/** When each of several things may be tried again. What is not in here may be tried now. */
class Pauses extends Map<string, Pause> {
  readonly #clock: Clock;

  constructor(clock: Clock) {
    super();
    this.#clock = clock;
  }

  /** In milliseconds. Not above 0: now. */
  wait(key: string): number {
    return (this.get(key)?.until ?? 0) - this.#clock.now();
  }

  /** In the clock's time. */
  failedAt(key: string): number {
    return this.get(key)?.at ?? NEVER;
  }

  /** Counts a failure: the pause doubles with each, from `first` milliseconds to `cap`. Half of it is random. */
  failed(key: string, first: number, cap: number, from = this.#clock.now()): void {
    const failures = this.get(key)?.failures ?? 0;
    const ms = Math.min(Math.max(first, cap), first * 2 ** failures);
    this.put(key, failures + 1, from + ms * (0.5 + this.#clock.random() / 2));
  }

  put(key: string, failures: number, until: number): void {
    // The oldest comes first, and is forgotten first: a name may keep resolving to new addresses.
    this.delete(key);
    this.set(key, { failures, at: this.#clock.now(), until });
    if (this.size > AGENT.maxKnown) this.delete(this.keys().next().value as string);
  }
}

/** An attempt to connect, and when it began. */
export type Attempt = Target & {
  readonly since: number;
  /** Whether it began while there was a session. */
  readonly calm: boolean;
  /** How long it may take, in milliseconds. */
  readonly timeout: number;
};

export interface ReconnectOptions {
  readonly syncInterval: number;
  readonly syncIntervalCap: number;
  readonly rebalanceTime: number;
  readonly clock: Clock;
}

/**
 * The one policy of connecting again. Without any session, an agent tries one address after another at once. Otherwise it waits a random
 * time, because a whole herd of agents has seen the same event. Only what failed has to wait, ever longer.
 */
export class Reconnect {
  /** By address, or by the name of a configured server that does not resolve. */
  readonly addresses: Pauses;
  /** By configured server, after it led to a server that is connected already. */
  readonly misses: Pauses;
  /** By better hub: when to move there, and after an attempt, when to try again. */
  readonly #moves: Pauses;
  readonly #options: ReconnectOptions;
  readonly #pending = new Set<Attempt>();
  /** When to replace a missing session. */
  #from: number | undefined;
  /** Failed attempts since a session began, or the last one was lost, and how many of them took too long. */
  #failures = 0;
  #late = 0;

  constructor(options: ReconnectOptions) {
    this.#options = options;
    this.addresses = new Pauses(options.clock);
    this.misses = new Pauses(options.clock);
    this.#moves = new Pauses(options.clock);
  }

  get pending(): readonly Attempt[] {
    return [...this.#pending];
  }

  /**
   * Returns the milliseconds until one more attempt may begin.
   * @param connected whether there is any session
   * @param herd whether other agents have seen the reason to connect too
   */
  wait(missing: number, connected: boolean, herd = connected): number {
    this.#from ??= this.#now + (herd ? this.#options.clock.random() * AGENT.herdSpreadMs : 0);
    const full = this.#young(connected).length >= Math.max(1, missing);
    if (full || this.#counted(connected).length >= AGENT.maxAttempts) return AGENT.youngAttemptMs;
    return Math.max(0, this.#from - this.#now);
  }

  /**
   * Returns where to connect, best first, each with the milliseconds until it may be tried: hubs in the order that they are given, those where
   * a session was lost after the others, then the configured servers. For an agent without a session, all that failed or was lost comes last,
   * and the longest ago first: nothing is left out, however many there are. A hub that hangs gets no second attempt; a load balancer that led
   * to it may lead to another next time.
   * @param connected whether there is any session
   * @param configuredFirst whether what is known of the hubs may be outdated
   */
  targets(
    hubs: readonly HubMember[],
    servers: readonly ConfiguredServer[],
    connected: boolean,
    configuredFirst = false,
  ): (Target & { readonly wait: number })[] {
    const { addresses } = this;
    const young = this.#young(connected);
    const engaged = this.pending.filter((attempt) => !attempt.configured || young.includes(attempt));
    const wasLost = (place: string) => Number(addresses.get(place)?.failures === 0);
    const known = hubs
      .flatMap((hub) => hubPlaceOf(hub) ?? [])
      .filter((place) => !engaged.some((attempt) => attempt.place === place && !attempt.configured))
      .sort((a, b) => wasLost(a) - wasLost(b))
      .map((place) => ({ place, wait: addresses.wait(place), failedAt: addresses.failedAt(place) }));
    const configured = servers
      .filter((server) => !engaged.some((attempt) => attempt.configured === server))
      .map((server) => ({
        place: server.place,
        configured: server,
        wait: server.wait(this),
        failedAt: configuredFirst ? NEVER : server.failedAt(this),
      }));
    const all = configuredFirst ? [...configured, ...known] : [...known, ...configured];
    return connected ? all : all.sort((a, b) => a.failedAt - b.failedAt);
  }

  begin(target: Target, calm: boolean): Attempt {
    const urgent = Math.min(AGENT.calmTimeoutMs, AGENT.urgentTimeoutMs * 2 ** this.#late);
    const attempt = { ...target, since: this.#now, calm, timeout: calm ? AGENT.calmTimeoutMs : urgent };
    this.#pending.add(attempt);
    return attempt;
  }

  end(attempt: Attempt): void {
    this.#pending.delete(attempt);
  }

  /**
   * Call when an attempt failed.
   * @param place the address that it led to, if that is known
   * @param refused whether nobody listened there
   */
  failed(attempt: Attempt, place: string, connected: boolean, refused = false): void {
    this.#pause(place, !connected, refused && !connected ? AGENT.refusedCapMs : Number.POSITIVE_INFINITY);
    if (attempt.better) {
      this.missed(attempt, true);
      return;
    }
    if (this.#now - attempt.since >= attempt.timeout - AGENT.timerEarlyMs) this.#late++;
    if (++this.#failures > AGENT.freeFailures) this.#from = this.#now + AGENT.failureGapMs;
  }

  /**
   * Call when an attempt led to a server that is connected already, or not to the better hub that was wanted.
   * @param inPlane whether the agent would also hear of a new server
   */
  missed({ place, better }: Target, inPlane: boolean): void {
    const { syncInterval, syncIntervalCap } = this.#options;
    const pauses = better ? this.#moves : this.misses;
    pauses.failed(better ? moveTo(better) : place, syncInterval, inPlane ? AGENT.missedCapMs : syncIntervalCap);
  }

  /** Draws a time for each hub to move to, unless it has one: a constant part of all agents moves each second. Drops those of others. */
  plan(better: readonly HubMember[]): void {
    const { clock, rebalanceTime } = this.#options;
    const keys = better.map(moveTo);
    for (const key of this.#moves.keys()) if (!keys.includes(key)) this.#moves.delete(key);
    for (const key of keys)
      if (!this.#moves.has(key)) this.#moves.put(key, 0, this.#now + clock.random() * rebalanceTime);
  }

  /**
   * Returns the milliseconds until the agent may move to a hub.
   * @param busy whether the session to displace carries tunnels
   */
  moveWait(hub: HubMember, busy: boolean): number {
    const first = this.#moves.get(moveTo(hub))?.failures === 0;
    return this.#moves.wait(moveTo(hub)) + (busy && first ? this.#options.rebalanceTime * AGENT.busyPart : 0);
  }

  /** Call when nothing is missing, or something else than before: the next need draws a time of its own. */
  anew(): void {
    this.#from = undefined;
  }

  /** Call when a session began. What failed there before counts until a session was stable. */
  reached(place: string): void {
    if (this.addresses.get(place)?.failures === 0) this.addresses.delete(place);
    this.#failures = 0;
    this.#late = 0;
    this.misses.clear();
    this.anew();
  }

  /**
   * Call when a session that lasted `lived` milliseconds was lost, or its server says that it leaves. One that was unstable counts as a
   * failure at its start. For servers that leave, `briefMs` is enough: hubs behind one address may be replaced quickly.
   */
  lost(place: string, lived: number, connected: boolean, leaves = false): void {
    if (!connected) {
      this.reached(place);
      // Everything else is worth a try now.
      if (lived >= AGENT.briefMs)
        for (const key of this.addresses.keys()) if (key !== place) this.addresses.delete(key);
    }
    if (lived >= (leaves ? AGENT.briefMs : AGENT.stableMs)) this.addresses.put(place, 0, this.#now);
    else this.#pause(place, !connected && leaves, Number.POSITIVE_INFINITY, this.#now - lived);
  }

  /** Call when hubs started at these addresses: what is known of them is outdated. */
  started(places: readonly string[]): void {
    for (const place of places) this.addresses.delete(place);
    this.misses.clear();
    this.anew();
  }

  get #now(): number {
    return this.#options.clock.now();
  }

  /** @param urgent whether to begin with a short pause: a load balancer may lead elsewhere, or the server start together with the agent */
  #pause(place: string, urgent: boolean, cap: number, from = this.#now): void {
    const { syncInterval, syncIntervalCap } = this.#options;
    const first = urgent ? Math.min(syncInterval, AGENT.firstPauseMs) : syncInterval;
    this.addresses.failed(place, first, Math.min(cap, syncIntervalCap), from);
  }

  /** The attempts that an agent waits for before it tries another. One that lost its last session meanwhile waits for no calm attempt. */
  #counted(connected: boolean): Attempt[] {
    return this.pending.filter(({ calm }) => connected || !calm);
  }

  #young(connected: boolean): Attempt[] {
    const counted = this.#counted(connected);
    const doubled = AGENT.youngAttemptMs * 2 ** Math.max(0, counted.length - 1);
    return counted.filter(({ since }) => this.#now - since < (connected ? AGENT.patientAttemptMs : doubled));
  }
}

/** A hub that starts again, or elsewhere, gets another time. */
function moveTo({ hubId, generation, address }: HubMember): string {
  return `${hubId} ${generation} ${address}`;
}
