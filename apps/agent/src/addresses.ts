import type { HubMember } from '@isthmus/transport';
import { formatDestination, parseDestination } from '@isthmus/tunnel';
import { AddressBackoff, NEVER, STABLE_MS, type UrgentFailure } from './address-backoff.ts';
import { Origin, type OriginOptions } from './origin.ts';
import type { ServerAddress } from './uplink.ts';

/** The agent waits before it reconnects to a server that ends connections sooner than this, in milliseconds. */
const BRIEF_MS = 1000;

/** A hub's own address, or a configured server, which may lead to any hub. */
export type Target = (
  | { readonly server: ServerAddress; readonly origin?: undefined }
  | { readonly server?: undefined; readonly origin: Origin }
) & {
  /** The only hub that is wanted. */
  readonly only?: string;
};

export interface AddressesOptions extends Omit<OriginOptions, 'host'> {
  /** The configured servers. */
  readonly hosts: readonly string[];
}

/** Where an agent may connect: to the plane's hubs by rank, to the configured servers in turn, and last to what failed. */
export class Addresses {
  /** Those whose turn is next first. */
  #origins: readonly Origin[];
  readonly #backoff: AddressBackoff;
  /** Where the last session was lost, or is about to be. */
  #lost = '';

  constructor({ hosts, ...options }: AddressesOptions) {
    const first = Math.floor(options.clock.random() * hosts.length);
    // Agents that are configured alike do not all begin with the same one.
    this.#origins = [...hosts.slice(first), ...hosts.slice(0, first)].map((host) => new Origin({ ...options, host }));
    this.#backoff = new AddressBackoff(options.first, options.cap, options.clock);
  }

  /**
   * Returns targets, best first, each with the milliseconds until it may be tried. The server of a session that was just lost is the
   * least likely to work. An agent without a session first tries those that never failed, then those that failed longest ago: none is
   * left out, however many there are.
   * @param connected whether the agent has any session that stays
   * @param without targets to leave out
   * @param originFirst whether the configured servers come before all hubs, even if they failed, because what is known of the hubs may be
   * outdated
   */
  rank(
    hubs: readonly HubMember[],
    connected: boolean,
    without: readonly Target[],
    originFirst = false,
  ): (Target & { readonly wait: number })[] {
    const excluded = new Set(without.map(({ server, origin }) => (server ? placeOf(server) : origin)));
    const targets = hubs
      .flatMap((hub) => serverOf(hub) ?? [])
      .map((server) => ({ server, place: placeOf(server) }))
      .filter(({ place }) => !excluded.has(place))
      .sort((a, b) => Number(a.place === this.#lost) - Number(b.place === this.#lost))
      .map(({ server, place }) => ({
        server,
        wait: this.#backoff.wait(place),
        failedAt: this.#backoff.failedAt(place),
      }));
    const origins = this.#origins
      .filter((origin) => !excluded.has(origin))
      .map((origin) => ({
        origin,
        wait: origin.wait(this.#backoff, connected),
        failedAt: originFirst ? NEVER : origin.failedAt(this.#backoff),
      }));
    const ranked = originFirst ? [...origins, ...targets] : [...targets, ...origins];
    return connected ? ranked : ranked.sort((a, b) => a.failedAt - b.failedAt);
  }

  /** Returns the milliseconds until a target that failed may be tried again. */
  wait({ server, origin }: Target): number {
    return server ? this.#backoff.wait(placeOf(server)) : origin.wait(this.#backoff, false);
  }

  /** Returns where a hub is reached: at its own address, or through the configured server whose turn it is. */
  targetOf(hub: HubMember): Target {
    const server = serverOf(hub);
    return server ? { server } : { origin: this.#origins[0] as Origin };
  }

  /** Names a target while its address is not known yet. */
  nameOf({ server, origin }: Target): string {
    return server ? placeOf(server) : origin.name;
  }

  /** Returns the address to connect to. */
  async resolve({ server, origin }: Target, connected: boolean): Promise<ServerAddress> {
    if (server) return server;
    this.#origins = [...this.#origins.filter((other) => other !== origin), origin];
    return origin.next(this.#backoff, connected);
  }

  /** Call when it failed for an agent that has a session. */
  failed(place: string): void {
    this.#backoff.failed(place);
  }

  /** Call when it failed for an agent without a session. */
  failedUrgently(place: string, failure?: UrgentFailure): void {
    this.#backoff.failedUrgently(place, failure);
  }

  /** Call when a session was lost that lasted `lived` milliseconds. Returns whether to hurry, because it was the last one. */
  lost(place: string, lived: number, connected: boolean): boolean {
    this.#lost = place;
    this.#backoff.lost(place, lived);
    const hurry = !connected && lived >= BRIEF_MS;
    if (hurry) this.#backoff.hasten();
    return hurry;
  }

  /**
   * Call when the server of a session that is `lived` milliseconds old is leaving. If it accepts agents only to say that, this counts
   * as a failure. Behind a load balancer, the address is the balancer's, and the next connection may lead elsewhere.
   */
  warned(place: string, lived: number): void {
    this.#lost = place;
    // In between, hubs behind one address are replaced quickly, which is no failure of the address.
    if (lived < BRIEF_MS || lived >= STABLE_MS) this.#backoff.left(place, lived);
  }

  /** Call when it led to a server that is connected already; see `Origin`. */
  missed({ origin }: Target, mayBeSlow: boolean): void {
    for (const each of origin ? [origin] : this.#origins) each.missed(mayBeSlow);
  }

  /** Call when a session began. */
  reached(): void {
    for (const origin of this.#origins) origin.afresh();
  }

  /** Call when these hubs started: what is known of their addresses is outdated. */
  started(hubs: readonly HubMember[]): void {
    for (const hub of hubs) {
      const server = serverOf(hub);
      if (!server) continue;
      const place = placeOf(server);
      this.#backoff.forgive(place);
      // Otherwise, a herd would return by way of the other hubs, and connect twice.
      if (this.#lost === place) this.#lost = '';
    }
    this.reached();
  }
}

/** Undefined for a hub that agents reach only through the configured server. */
export function serverOf({ address }: HubMember): ServerAddress | undefined {
  if (address === '') return undefined;
  const { host, port } = parseDestination(address);
  return { address: host, port };
}

export function placeOf({ address, port }: ServerAddress): string {
  return formatDestination({ host: address, port });
}
