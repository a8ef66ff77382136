import { Backoff, type Clock } from '@isthmus/runtime';

/** A connection that lasted this long shows that its server is well, in milliseconds. */
export const STABLE = 10_000;

/** Addresses that are remembered; a name that resolves to ever new ones makes the oldest forgotten. */
const MAX_ADDRESSES = 1024;

/** The longest that an agent without a session waits after one refusal: a balancer may lead elsewhere, in milliseconds. */
const URGENT = 100;

/**
 * The same where nobody listened, and how often: asking again costs nobody anything, and finds a server that starts together
 * with its agent as soon as it is there. Each time twice as long, so 1.5 s together.
 */
const REFUSED = 50;
const MAX_REFUSED = 5;

/** How an address failed an agent that has no session. */
export interface UrgentFailure {
  /** How many other failures there were since it had one. Default: none. */
  readonly before?: number;
  /** Nobody listened there. Default: false. */
  readonly refused?: boolean;
}

/** Before all times of a clock. */
export const NEVER = -1;

interface Pause {
  readonly backoff: Backoff;
  /** When it failed. NEVER when that tells nothing any more. */
  at: number;
  /** 0 for no longer. */
  until: number;
}

/** When an address may be connected to again: at once, but for those that failed. */
export class Redial {
  readonly #first: number;
  readonly #cap: number;
  readonly #clock: Clock;
  readonly #pauses = new Map<string, Pause>();

  /** @param first the longest pause after one failure, in milliseconds, which doubles with each further one up to `cap` */
  constructor(first: number, cap: number, clock: Clock) {
    this.#first = first;
    this.#cap = cap;
    this.#clock = clock;
  }

  /** Milliseconds; 0 for at once. */
  wait(address: string): number {
    return Math.max(0, (this.#pauses.get(address)?.until ?? 0) - this.#clock.now());
  }

  /** When it failed, of the clock's time; NEVER if it has not since every address was worth a try. */
  failedAt(address: string): number {
    return this.#pauses.get(address)?.at ?? NEVER;
  }

  failed(address: string): void {
    const { backoff } = this.#of(address);
    this.#pause(address, backoff, backoff.next());
  }

  /** It failed an agent that has no session. The first time does not change what follows, nor do the next few that are refused. */
  failedUrgently(address: string, { before = 0, refused = false }: UrgentFailure = {}): void {
    if (before >= (refused ? MAX_REFUSED : 1)) this.failed(address);
    else this.#pause(address, this.#of(address).backoff, this.#urgent(refused ? REFUSED * 2 ** before : URGENT));
  }

  /** A connection was lost that lasted `lived` milliseconds. One that was not stable counts as a failure when it began. */
  lost(address: string, lived: number): void {
    if (lived >= STABLE) {
      this.forgive(address);
      return;
    }
    this.failed(address);
    (this.#pauses.get(address) as Pause).until -= lived;
  }

  /** A server said that it goes when a connection to it was `lived` milliseconds old: as if it were lost, but for the first time. */
  left(address: string, lived: number): void {
    if (lived >= STABLE || this.#pauses.has(address)) {
      this.lost(address, lived);
      return;
    }
    this.failedUrgently(address);
    (this.#pauses.get(address) as Pause).until -= lived;
  }

  /** The last connection is lost: every address is worth a try now. What fails again waits as long as it would have. */
  hasten(): void {
    for (const pause of this.#pauses.values()) {
      pause.at = NEVER;
      pause.until = 0;
    }
  }

  /** There is reason to think that it works now. */
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
    return Math.min(most, this.#first) * (0.5 + this.#clock.random() / 2);
  }
}
