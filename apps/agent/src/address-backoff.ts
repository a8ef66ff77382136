import { Backoff, type Clock } from '@isthmus/runtime';

/** A connection that lasted this long shows that its server is well, in milliseconds. */
export const STABLE_MS = 10_000;

/** How many addresses are remembered. If a name keeps resolving to new ones, the oldest is forgotten. */
const MAX_ADDRESSES = 1024;

/** The longest pause after one refusal for an agent without a session, in milliseconds: a load balancer may lead elsewhere. */
const URGENT_PAUSE_MS = 100;

/**
 * The first pause if nobody listened, in milliseconds, and how often it is used. Trying again costs nothing, and finds a server that
 * starts together with its agent at once. The pause doubles each time: 1.5 s in all.
 */
const REFUSED_PAUSE_MS = 50;
const MAX_REFUSED_PAUSES = 5;

/**
 * The longest pause while nobody listens, in milliseconds, unless the first one is longer. The host is up, and answers at the cost of a
 * packet. A static pod of one server is away for 10 s, and callers wait for its agents.
 */
const LONGEST_REFUSED_PAUSE_MS = 2000;

/** How an address failed an agent that has no session. */
export interface UrgentFailure {
  /** How many other failures there were since it had one. Default: none. */
  readonly before?: number;
  /** Whether nobody listened there. Default: false. */
  readonly refused?: boolean;
}

/** Earlier than any time of a clock. */
export const NEVER = -1;

interface Pause {
  readonly backoff: Backoff;
  /** When it failed. NEVER once that has lost its meaning. */
  at: number;
  /** 0 if it may be tried now. */
  until: number;
}

/** When an address may be tried again. Only those that failed have to wait. */
export class AddressBackoff {
  readonly #first: number;
  readonly #cap: number;
  readonly #clock: Clock;
  readonly #pauses = new Map<string, Pause>();

  /** @param first the longest pause after one failure, in milliseconds. It doubles with each further failure up to `cap` */
  constructor(first: number, cap: number, clock: Clock) {
    this.#first = first;
    this.#cap = cap;
    this.#clock = clock;
  }

  /** In milliseconds; 0 for at once. */
  wait(address: string): number {
    return Math.max(0, (this.#pauses.get(address)?.until ?? 0) - this.#clock.now());
  }

  /** When it failed, in the clock's time; NEVER if it has not failed since all addresses were last worth a try. */
  failedAt(address: string): number {
    return this.#pauses.get(address)?.at ?? NEVER;
  }

  failed(address: string): void {
    const { backoff } = this.#of(address);
    this.#pause(address, backoff, backoff.next());
  }

  /** Call when it failed for an agent without a session. The first failure does not change later pauses, nor do the next few refusals. */
  failedUrgently(address: string, { before = 0, refused = false }: UrgentFailure = {}): void {
    const { backoff } = this.#of(address);
    const early = before < (refused ? MAX_REFUSED_PAUSES : 1);
    if (early) this.#pause(address, backoff, this.#urgent(refused ? REFUSED_PAUSE_MS * 2 ** before : URGENT_PAUSE_MS));
    else this.#pause(address, backoff, refused ? this.#ofRefused(backoff.next()) : backoff.next());
  }

  /** Call when a connection was lost that lasted `lived` milliseconds. An unstable one counts as a failure at its start. */
  lost(address: string, lived: number): void {
    if (lived >= STABLE_MS) {
      this.forgive(address);
      return;
    }
    this.failed(address);
    (this.#pauses.get(address) as Pause).until -= lived;
  }

  /** Call when a server is leaving whose connection is `lived` milliseconds old: counts like a loss, except for the first time. */
  left(address: string, lived: number): void {
    if (lived >= STABLE_MS || this.#pauses.has(address)) {
      this.lost(address, lived);
      return;
    }
    this.failedUrgently(address);
    (this.#pauses.get(address) as Pause).until -= lived;
  }

  /** Call when the last connection was lost: every address is worth a try now. One that fails again waits as long as it would have. */
  hasten(): void {
    for (const pause of this.#pauses.values()) {
      pause.at = NEVER;
      pause.until = 0;
    }
  }

  /** Call when there is reason to think that it works now. */
  forgive(address: string): void {
    this.#pauses.delete(address);
  }

  #of(address: string): { readonly backoff: Backoff } {
    return this.#pauses.get(address) ?? { backoff: new Backoff(this.#first, this.#cap, this.#clock.random) };
  }

  #pause(address: string, backoff: Backoff, ms: number): void {
    this.#pauses.delete(address);
    const at = this.#clock.now();
    this.#pauses.set(address, { backoff, at, until: at + ms });
    if (this.#pauses.size > MAX_ADDRESSES) this.#pauses.delete(this.#pauses.keys().next().value as string);
  }

  #urgent(most: number): number {
    return this.#random(Math.min(most, this.#first));
  }

  #ofRefused(pause: number): number {
    return Math.min(pause, this.#random(Math.max(this.#first, LONGEST_REFUSED_PAUSE_MS)));
  }

  #random(most: number): number {
    return most * (0.5 + this.#clock.random() / 2);
  }
}
