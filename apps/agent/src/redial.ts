import { Backoff } from '@isthmus/tunnel';
import type { Clock } from './clock.ts';

/** A connection that lasted this long shows that its server is well, in milliseconds. */
const STABLE = 10_000;

/** Addresses that are remembered; a name that resolves to ever new ones makes the oldest forgotten. */
const MAX_ADDRESSES = 1024;

interface Pause {
  readonly backoff: Backoff;
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

  failed(address: string): void {
    const backoff = this.#pauses.get(address)?.backoff ?? new Backoff(this.#first, this.#cap, this.#clock.random);
    this.#pauses.delete(address);
    this.#pauses.set(address, { backoff, until: this.#clock.now() + backoff.next() });
    if (this.#pauses.size > MAX_ADDRESSES) this.#pauses.delete(this.#pauses.keys().next().value as string);
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

  /** The last connection is lost: every address is worth a try now. What fails again waits as long as it would have. */
  hasten(): void {
    for (const pause of this.#pauses.values()) pause.until = 0;
  }

  /** There is reason to think that it works now. */
  forgive(address: string): void {
    this.#pauses.delete(address);
  }
}
