import { Backoff, type Clock, resolveName, within } from '@isthmus/runtime';
import { formatDestination } from '@isthmus/tunnel';
import { type AddressBackoff, NEVER } from './address-backoff.ts';
import type { ServerAddress } from './uplink.ts';

/** How long a name may take to resolve, in milliseconds. The resolver itself may take minutes when its servers are silent. */
const LOOKUP_TIMEOUT = 5000;

/** So often in a row it may lead to a server that is connected already before it is asked at a slow pace, in milliseconds. */
const MAX_MISSES = 16;
const SLOW_PACE = 60_000;

export interface OriginOptions {
  readonly host: string;
  readonly port: number;
  /** Between misses, in milliseconds: at first, and at most while the pace is not slow. */
  readonly first: number;
  readonly cap: number;
  readonly clock: Clock;
  readonly resolve?: (host: string, signal: AbortSignal) => Promise<readonly string[]>;
}

/**
 * The configured server: one server, a load balancer before several, or a name that resolves to all of them. If agents know no other
 * address, they connect to it again and again until it has led to as many servers as they should have.
 */
export class Origin {
  readonly name: string;
  readonly #options: OriginOptions;
  readonly #misses: Backoff;
  #missed = 0;
  #missedUntil = 0;
  #addresses: readonly string[] = [];
  #turn = 0;

  constructor(options: OriginOptions) {
    const { first, cap, clock } = options;
    this.#options = options;
    this.name = formatDestination(options);
    this.#misses = new Backoff(first, cap, clock.random);
  }

  /** Milliseconds until it may be tried. For an agent without connections, whatever it leads to is new. */
  wait(backoff: AddressBackoff, connected: boolean): number {
    const waits = this.#addresses.map((address) => backoff.wait(this.#place(address)));
    const failed = Math.max(backoff.wait(this.name), waits.length === 0 ? 0 : Math.min(...waits));
    return connected ? Math.max(failed, this.#missedUntil - this.#options.clock.now()) : failed;
  }

  /** When it did not resolve, or when the first of its addresses failed, if all have. NEVER otherwise. */
  failedAt(backoff: AddressBackoff): number {
    const failed = this.#addresses.map((address) => backoff.failedAt(this.#place(address)));
    return Math.max(backoff.failedAt(this.name), failed.length === 0 ? NEVER : Math.min(...failed));
  }

  /**
   * Its addresses take turns. One that has to wait gets its turn only if all have to; for an agent without a session, the same applies
   * to one that failed.
   */
  async next(backoff: AddressBackoff, connected: boolean): Promise<ServerAddress> {
    const { host, port } = this.#options;
    this.#addresses = await this.#lookup();
    const sound = this.#addresses.filter((address) => !connected && backoff.failedAt(this.#place(address)) === NEVER);
    const free = this.#addresses.filter((address) => backoff.wait(this.#place(address)) === 0);
    const choice = [sound, free].find(({ length }) => length > 0) ?? this.#addresses;
    const address = choice[this.#turn++ % choice.length];
    if (address === undefined) throw new Error(`${host} resolves to no address`);
    return { address, port, name: host };
  }

  /**
   * Call when it led to a server that is connected already.
   * @param mayBeSlow whether the agent would also hear of a new server
   */
  missed(mayBeSlow: boolean): void {
    const { now, random } = this.#options.clock;
    const slow = ++this.#missed > MAX_MISSES && mayBeSlow;
    this.#missedUntil = now() + (slow ? SLOW_PACE * (0.5 + random()) : this.#misses.next());
  }

  /** Call when it led to another server, or when there is another one. */
  afresh(): void {
    this.#missed = 0;
    this.#missedUntil = 0;
    this.#misses.reset();
  }

  #place(address: string): string {
    return formatDestination({ host: address, port: this.#options.port });
  }

  /** While the name does not resolve, its last addresses are used. */
  async #lookup(): Promise<readonly string[]> {
    const { host, resolve = system } = this.#options;
    const giveUp = new AbortController();
    try {
      const found = resolve(host, giveUp.signal);
      if (await within(found, LOOKUP_TIMEOUT)) return await found;
      throw new Error(`${host} did not resolve within ${LOOKUP_TIMEOUT / 1000} s`);
    } catch (error) {
      if (this.#addresses.length > 0) return this.#addresses;
      throw error;
    } finally {
      giveUp.abort();
    }
  }
}

/** As this machine resolves it. */
export async function system(host: string, signal: AbortSignal): Promise<readonly string[]> {
  return (await resolveName(host, signal)).map(({ address }) => address);
}
