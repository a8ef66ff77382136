import { lookup } from 'node:dns/promises';
import { deferred, formatDestination } from '@isthmus/tunnel';
import type { Redial } from './redial.ts';
import type { ServerAddress } from './uplink.ts';

/** How long a name may take to resolve, in milliseconds. The resolver itself may take minutes when its servers are silent. */
const LOOKUP_TIMEOUT = 5000;

export type Resolve = (host: string) => Promise<readonly string[]>;

const system: Resolve = async (host) => (await lookup(host, { all: true })).map(({ address }) => address);

/** The configured server: one, a balancer before several, or a name that resolves to all of them. */
export class Origin {
  readonly host: string;
  readonly port: number;
  readonly #resolve: Resolve;
  #addresses: readonly string[] = [];
  #turn = 0;

  constructor({ host, port }: { readonly host: string; readonly port: number }, resolve: Resolve = system) {
    this.host = host;
    this.port = port;
    this.#resolve = resolve;
  }

  get name(): string {
    return formatDestination(this);
  }

  /** Milliseconds until one of its addresses may be connected to. */
  wait(redial: Redial): number {
    const waits = this.#addresses.map((address) => redial.wait(this.#place(address)));
    return Math.max(redial.wait(this.name), waits.length === 0 ? 0 : Math.min(...waits));
  }

  /** Its addresses take turns; one that has to wait, only when all do. */
  async next(redial: Redial): Promise<ServerAddress> {
    this.#addresses = await this.#lookup();
    const free = this.#addresses.filter((address) => redial.wait(this.#place(address)) === 0);
    const choice = free.length > 0 ? free : this.#addresses;
    const address = choice[this.#turn++ % choice.length];
    if (address === undefined) throw new Error(`${this.host} resolves to no address`);
    return { address, port: this.port };
  }

  #place(address: string): string {
    return formatDestination({ host: address, port: this.port });
  }

  /** What the name resolved to before serves while it does not resolve. */
  async #lookup(): Promise<readonly string[]> {
    const { promise: late, reject } = deferred<never>();
    const timer = setTimeout(
      () => reject(new Error(`${this.host} did not resolve within ${LOOKUP_TIMEOUT / 1000} s`)),
      LOOKUP_TIMEOUT,
    );
    try {
      return await Promise.race([this.#resolve(this.host), late]);
    } catch (error) {
      if (this.#addresses.length > 0) return this.#addresses;
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }
}
