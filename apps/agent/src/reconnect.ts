import type { Clock } from '@isthmus/runtime';
import type { HubMember } from '@isthmus/transport';
import type { Target } from './targets.ts';
import { UPKEEP } from './upkeep-defaults.ts';

/** Earlier than any time of a clock. */
export const NEVER = -1;

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
export class Pauses extends Map<string, Pause> {
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
    if (this.size > UPKEEP.maxKnown) this.delete(this.keys().next().value as string);
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
    this.#from ??= this.#now + (alone ? 0 : random() * UPKEEP.herdSpread);
    const full = this.#young(connected).length >= Math.max(1, missing);
    if (full || this.#counted(connected).length >= UPKEEP.maxAttempts) return UPKEEP.youngAttempt;
    const mayWait = connected || this.#failures > UPKEEP.freeFailures;
    return mayWait ? Math.max(0, this.#from - this.#now) : 0;
  }

  /** What not to try now: a hub that hangs gets no second attempt. A load balancer that led to it may lead to another next time. */
  engaged(connected: boolean): readonly Attempt[] {
    const young = this.#young(connected);
    return this.pending.filter((attempt) => !attempt.configured || young.includes(attempt));
  }

  begin(target: Target, calm: boolean): Attempt {
    const urgent = Math.min(UPKEEP.calmTimeout, UPKEEP.urgentTimeout * 2 ** this.#late);
    const attempt = { ...target, since: this.#now, calm, timeout: calm ? UPKEEP.calmTimeout : urgent };
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
    const { refusedTries, refusedPause, refusedCap, firstPause, timerEarly, freeFailures, failureGap } = UPKEEP;
    const { syncInterval, syncIntervalCap: cap } = this.#options;
    const before = this.#failures;
    const early = !connected && before < (refused ? refusedTries : 1);
    const short = refused ? refusedPause * 2 ** before : firstPause;
    if (early) this.addresses.pause(place, Math.min(syncInterval, short));
    else this.addresses.longer(place, syncInterval, refused && !connected ? Math.min(cap, refusedCap) : cap);
    if (attempt.better) {
      this.missed(attempt, false);
      return;
    }
    if (this.#now - attempt.since >= attempt.timeout - timerEarly) this.#late++;
    if (++this.#failures > freeFailures) this.#from = this.#now + failureGap;
  }

  /**
   * Call when an attempt led to a server that is connected already, or not to the better hub that was wanted.
   * @param mayBeSlow whether the agent would also hear of a new server
   */
  missed({ place, better }: Target, mayBeSlow: boolean): void {
    const { maxTries, missedPause, movePauses, moveFirst, moveCap, lookEvery } = UPKEEP;
    const { syncInterval, syncIntervalCap, rebalanceTime, clock } = this.#options;
    const pauses = better ? this.#moves : this.misses;
    const key = better ? moveTo(better) : place;
    const failures = pauses.failures(key) + 1;
    const rests = better ? failures % maxTries === 0 : failures > maxTries && mayBeSlow;
    const rest = better ? Math.max(rebalanceTime, lookEvery) * movePauses : missedPause;
    if (better && !pauses.has(key)) return;
    if (rests) pauses.put(key, rest * (0.5 + clock.random()), { failures });
    else if (better) pauses.longer(key, moveFirst, moveCap);
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
    return this.#moves.wait(moveTo(hub)) + (longer ? this.#options.rebalanceTime * UPKEEP.busyPart : 0);
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
    if (connected || lived < UPKEEP.brief) return;
    // Everything else is worth a try now. What fails again waits as long as it would have.
    for (const [key, pause] of this.addresses)
      this.addresses.set(key, { ...pause, at: NEVER, until: key === place ? pause.until : 0 });
    this.reached();
  }

  /**
   * Call when the server of a session that is `lived` milliseconds old is leaving. One that accepts agents only to say that counts as
   * failed, but for the first time. Between `brief` and `stable`, hubs behind one address are replaced quickly: no failure of the address.
   */
  warned(place: string, lived: number): void {
    this.#lostAt = place;
    const first = lived < UPKEEP.brief && !this.addresses.has(place);
    const short = Math.min(this.#options.syncInterval, UPKEEP.firstPause);
    if (first) this.addresses.pause(place, short, { from: this.#now - lived });
    else if (lived < UPKEEP.brief || lived >= UPKEEP.stable) this.#unstable(place, lived);
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
    if (lived >= UPKEEP.stable) this.addresses.delete(place);
    else this.addresses.longer(place, syncInterval, syncIntervalCap, this.#now - lived);
  }

  /** The attempts that an agent waits for before it tries another. One that lost its last session meanwhile waits for no calm attempt. */
  #counted(connected: boolean): Attempt[] {
    return this.pending.filter(({ calm }) => connected || !calm);
  }

  #young(connected: boolean): Attempt[] {
    const counted = this.#counted(connected);
    const doubled = UPKEEP.youngAttempt * 2 ** Math.max(0, counted.length - 1);
    return counted.filter(({ since }) => this.#now - since < (connected ? UPKEEP.patientAttempt : doubled));
  }
}

/** A hub that starts again, or elsewhere, gets another time. */
function moveTo({ hubId, generation, address }: HubMember): string {
  return `${hubId} ${generation} ${address}`;
}
