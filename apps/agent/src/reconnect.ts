import { type Clock, resolveName, within } from '@isthmus/runtime';
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

  constructor(host: string, port: number, resolve: Resolve = resolved) {
    this.place = formatDestination({ host, port });
    this.#host = host;
    this.#port = port;
    this.#resolve = resolve;
  }

  /** Milliseconds until it, or the first of its addresses, may be tried. For an agent without a session, whatever it leads to is new. */
  wait({ addresses, misses }: Reconnect, connected: boolean): number {
    const first = Math.min(...this.#places.map((place) => addresses.wait(place)));
    const failed = Math.max(addresses.wait(this.place), Number.isFinite(first) ? first : 0);
    return connected ? Math.max(failed, misses.wait(this.place)) : failed;
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
    return { ...addressOf(place), name: this.#host };
  }

  /** While the name does not resolve, its last addresses are used. */
  async #lookup(): Promise<readonly string[]> {
    const giveUp = new AbortController();
    try {
      const found = this.#resolve(this.#host, giveUp.signal);
      if (!(await within(found, AGENT.lookupTimeoutMs)))
        throw new Error(`${this.#host} did not resolve within ${AGENT.lookupTimeoutMs / 1000} s`);
      const places = (await found).map((host) => formatDestination({ host, port: this.#port }));
      if (places.length === 0) throw new Error(`${this.#host} resolves to no address`);
      return places;
    } catch (error) {
      if (this.#places.length > 0) return this.#places;
      throw error;
    } finally {
      giveUp.abort();
    }
  }
}

interface RankOptions {
  /** Whether the agent has any session that stays. */
  readonly connected: boolean;
  /** Whether the configured servers come before all hubs, even if they failed, because what is known of the hubs may be outdated. */
  readonly configuredFirst: boolean;
}

/**
 * Returns targets, best first, each with the milliseconds until it may be tried: hubs in the order that they are given, then the
 * configured servers, but none that is engaged. Where a session was just lost comes last. An agent without a session first tries those
 * that never failed, then those that failed longest ago: none is left out, however many there are.
 */
export function rank(
  hubs: readonly HubMember[],
  servers: readonly ConfiguredServer[],
  reconnect: Reconnect,
  { connected, configuredFirst }: RankOptions,
): (Target & { readonly wait: number })[] {
  const { addresses, lostAt } = reconnect;
  const engaged = new Set(reconnect.engaged(connected).map(({ place, configured }) => configured ?? place));
  const known = hubs
    .flatMap((hub) => placeOf(hub) ?? [])
    .filter((place) => !engaged.has(place))
    .sort((a, b) => Number(a === lostAt) - Number(b === lostAt))
    .map((place) => ({ place, wait: addresses.wait(place), failedAt: addresses.failedAt(place) }));
  const configured = servers
    .filter((server) => !engaged.has(server))
    .map((server) => ({
      place: server.place,
      configured: server,
      wait: server.wait(reconnect, connected),
      failedAt: configuredFirst ? NEVER : server.failedAt(reconnect),
    }));
  const ranked = configuredFirst ? [...configured, ...known] : [...known, ...configured];
  return connected ? ranked : ranked.sort((a, b) => a.failedAt - b.failedAt);
}

/** Undefined for a hub that agents reach only through a configured server. */
export function placeOf({ address }: HubMember): string | undefined {
  return address === '' ? undefined : formatDestination(parseDestination(address));
}

export function addressOf(place: string): ServerAddress {
  const { host, port } = parseDestination(place);
  return { address: host, port };
}

/** As this machine resolves it. */
export async function resolved(host: string, signal: AbortSignal): Promise<readonly string[]> {
  return (await resolveName(host, signal)).map(({ address }) => address);
}

/** Earlier than any time of a clock. */
const NEVER = -1;

interface Pause {
  /** Each makes the next pause longer. */
  readonly failures: number;
  /** When it last failed. NEVER once that has lost its meaning. */
  readonly at: number;
  readonly until: number;
}

interface PauseOptions {
  readonly failures?: number;
  /** When the pause begins. */
  readonly from?: number;
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

  failures(key: string): number {
    return this.get(key)?.failures ?? 0;
  }

  /** In the clock's time. NEVER if it has not failed since all were last worth a try. */
  failedAt(key: string): number {
    return this.get(key)?.at ?? NEVER;
  }

  /** @param ms how long, half of it at random */
  pause(key: string, ms: number, options?: PauseOptions): void {
    this.put(key, ms * (0.5 + this.#clock.random() / 2), options);
  }

  /** Counts a failure: the pause doubles with each, from `first` to `cap`. */
  longer(key: string, first: number, cap: number, from?: number): void {
    const failures = this.failures(key);
    const ms = Math.min(Math.max(first, cap), first * 2 ** failures);
    this.pause(key, ms, { failures: failures + 1, ...(from !== undefined && { from }) });
  }

  put(key: string, ms: number, { failures = this.failures(key), from = this.#clock.now() }: PauseOptions = {}): void {
    // The oldest comes first, and is forgotten first: a name may keep resolving to new addresses.
    this.delete(key);
    this.set(key, { failures, at: this.#clock.now(), until: from + ms });
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
 * time, because a whole herd of agents has seen the same event. Only addresses that failed have to wait.
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
  #lostAt = '';

  constructor(options: ReconnectOptions) {
    this.#options = options;
    this.addresses = new Pauses(options.clock);
    this.misses = new Pauses(options.clock);
    this.#moves = new Pauses(options.clock);
  }

  get pending(): readonly Attempt[] {
    return [...this.#pending];
  }

  /** Where the last session was lost, or is about to be: the least likely to work. */
  get lostAt(): string {
    return this.#lostAt;
  }

  /**
   * Returns the milliseconds until one more attempt may begin.
   * @param connected whether there is any session
   * @param alone whether no other agent has seen the reason to connect
   */
  wait(missing: number, connected: boolean, alone = !connected): number {
    const { random } = this.#options.clock;
    this.#from ??= this.#now + (alone ? 0 : random() * AGENT.herdSpreadMs);
    const full = this.#young(connected).length >= Math.max(1, missing);
    if (full || this.#counted(connected).length >= AGENT.maxAttempts) return AGENT.youngAttemptMs;
    const mayWait = connected || this.#failures > AGENT.freeFailures;
    return mayWait ? Math.max(0, this.#from - this.#now) : 0;
  }

  /** What not to try now: a hub that hangs gets no second attempt. A load balancer that led to it may lead to another next time. */
  engaged(connected: boolean): readonly Attempt[] {
    const young = this.#young(connected);
    return this.pending.filter((attempt) => !attempt.configured || young.includes(attempt));
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
   * Call when an attempt failed. Without a session, the first failure does not change later pauses, nor do the first few refusals.
   * @param refused whether nobody listened there
   */
  failed(attempt: Attempt, place: string, connected: boolean, refused = false): void {
    const { refusedTries, refusedPauseMs, refusedCapMs, firstPauseMs, timerEarlyMs, freeFailures, failureGapMs } =
      AGENT;
    const { syncInterval, syncIntervalCap: cap } = this.#options;
    const before = this.#failures;
    const early = !connected && before < (refused ? refusedTries : 1);
    const short = refused ? refusedPauseMs * 2 ** before : firstPauseMs;
    if (early) this.addresses.pause(place, Math.min(syncInterval, short));
    else this.addresses.longer(place, syncInterval, refused && !connected ? Math.min(cap, refusedCapMs) : cap);
    if (attempt.better) {
      this.missed(attempt, false);
      return;
    }
    if (this.#now - attempt.since >= attempt.timeout - timerEarlyMs) this.#late++;
    if (++this.#failures > freeFailures) this.#from = this.#now + failureGapMs;
  }

  /**
   * Call when an attempt led to a server that is connected already, or not to the better hub that was wanted.
   * @param mayBeSlow whether the agent would also hear of a new server
   */
  missed({ place, better }: Target, mayBeSlow: boolean): void {
    const { maxTries, missedPauseMs, movePauses, moveFirstMs, moveCapMs, lookEveryMs } = AGENT;
    const { syncInterval, syncIntervalCap, rebalanceTime, clock } = this.#options;
    const pauses = better ? this.#moves : this.misses;
    const key = better ? moveTo(better) : place;
    const failures = pauses.failures(key) + 1;
    const rests = better ? failures % maxTries === 0 : failures > maxTries && mayBeSlow;
    const rest = better ? Math.max(rebalanceTime, lookEveryMs) * movePauses : missedPauseMs;
    if (better && !pauses.has(key)) return;
    if (rests) pauses.put(key, rest * (0.5 + clock.random()), { failures });
    else if (better) pauses.longer(key, moveFirstMs, moveCapMs);
    else pauses.longer(key, syncInterval, syncIntervalCap);
  }

  /** Draws a time for each hub to move to, unless it has one: a constant part of all agents moves each second. Drops those of others. */
  plan(better: readonly HubMember[]): void {
    const keys = better.map(moveTo);
    for (const key of this.#moves.keys()) if (!keys.includes(key)) this.#moves.delete(key);
    const { random } = this.#options.clock;
    for (const key of keys) if (!this.#moves.has(key)) this.#moves.put(key, random() * this.#options.rebalanceTime);
  }

  /**
   * Returns the milliseconds until the agent may move to a hub.
   * @param busy whether the session to displace carries tunnels
   */
  moveWait(hub: HubMember, busy: boolean): number {
    const longer = busy && this.#moves.failures(moveTo(hub)) === 0;
    return this.#moves.wait(moveTo(hub)) + (longer ? this.#options.rebalanceTime * AGENT.busyPart : 0);
  }

  /** Call when nothing is missing, or something else than before: the next need draws a time of its own. */
  anew(): void {
    this.#from = undefined;
  }

  /** Call when a session began. */
  reached(): void {
    this.#failures = 0;
    this.#late = 0;
    this.misses.clear();
    this.anew();
  }

  /** Call when a session was lost that lasted `lived` milliseconds. One that was unstable counts as a failure at its start. */
  lost(place: string, lived: number, connected: boolean): void {
    this.#lostAt = place;
    this.#unstable(place, lived);
    if (connected || lived < AGENT.briefMs) return;
    // Everything else is worth a try now. What fails again waits as long as it would have.
    for (const [key, pause] of this.addresses)
      this.addresses.set(key, { ...pause, at: NEVER, until: key === place ? pause.until : 0 });
    this.reached();
  }

  /**
   * Call when the server of a session that is `lived` milliseconds old is leaving. One that accepts agents only to say that counts as
   * failed, but for the first time. Between `briefMs` and `stableMs`, hubs behind one address are replaced quickly: no failure of the address.
   */
  warned(place: string, lived: number): void {
    this.#lostAt = place;
    const first = lived < AGENT.briefMs && !this.addresses.has(place);
    const short = Math.min(this.#options.syncInterval, AGENT.firstPauseMs);
    if (first) this.addresses.pause(place, short, { from: this.#now - lived });
    else if (lived < AGENT.briefMs || lived >= AGENT.stableMs) this.#unstable(place, lived);
  }

  /** Call when hubs started at these addresses: what is known of them is outdated. */
  started(places: readonly string[]): void {
    for (const place of places) this.addresses.delete(place);
    // Otherwise, a herd would return by way of the other hubs, and connect twice.
    if (places.includes(this.#lostAt)) this.#lostAt = '';
    this.misses.clear();
    this.anew();
  }

  get #now(): number {
    return this.#options.clock.now();
  }

  #unstable(place: string, lived: number): void {
    const { syncInterval, syncIntervalCap } = this.#options;
    if (lived >= AGENT.stableMs) this.addresses.delete(place);
    else this.addresses.longer(place, syncInterval, syncIntervalCap, this.#now - lived);
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
