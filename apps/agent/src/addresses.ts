import type { HubMember } from '@isthmus/transport';
import { formatDestination, parseDestination } from '@isthmus/tunnel';
import { Origin, type OriginOptions } from './origin.ts';
import { NEVER, Redial, STABLE, type UrgentFailure } from './redial.ts';
import type { ServerAddress } from './uplink.ts';

/** The agent waits before it reconnects to a server that ends connections sooner than this, in milliseconds. */
const BRIEF = 1000;

export interface Target {
  /** Unset for the configured server, which may lead to any hub. */
  readonly server?: ServerAddress;
  /** The only hub that is wanted. */
  readonly only?: string;
}

/** Where an agent may connect: to the plane's hubs by rank, to the configured server, and last to what failed. */
export class Addresses {
  readonly #origin: Origin;
  readonly #redial: Redial;
  /** Where the last session was lost, or is about to be. */
  #lost = '';

  constructor(options: OriginOptions) {
    this.#origin = new Origin(options);
    this.#redial = new Redial(options.first, options.cap, options.clock);
  }

  /**
   * Returns targets, best first, each with the milliseconds until it may be tried. The server of a session that was just lost is the
   * least likely to work. An agent without a session first tries those that never failed, then those that failed longest ago: none is
   * left out, however many there are.
   * @param connected whether the agent has any session that stays
   * @param without targets to leave out
   * @param originFirst whether the configured server comes before all hubs, even if it failed, because what is known of the hubs may be
   * outdated
   */
  rank(
    hubs: readonly HubMember[],
    connected: boolean,
    without: readonly Target[],
    originFirst = false,
  ): (Target & { readonly wait: number })[] {
    const excluded = new Set(without.map(({ server }) => server && placeOf(server)));
    const targets = hubs
      .flatMap((hub) => serverOf(hub) ?? [])
      .map((server) => ({ server, place: placeOf(server) }))
      .filter(({ place }) => !excluded.has(place))
      .sort((a, b) => Number(a.place === this.#lost) - Number(b.place === this.#lost))
      .map(({ server, place }) => ({
        server,
        wait: this.#redial.wait(place),
        failedAt: this.#redial.failedAt(place),
      }));
    const origin = {
      wait: this.#origin.wait(this.#redial, connected),
      failedAt: originFirst ? NEVER : this.#origin.failedAt(this.#redial),
    };
    const origins = excluded.has(undefined) ? [] : [origin];
    const ranked = originFirst ? [...origins, ...targets] : [...targets, ...origins];
    return connected ? ranked : ranked.sort((a, b) => a.failedAt - b.failedAt);
  }

  /** Returns the milliseconds until a target that failed may be tried again. */
  wait({ server }: Target): number {
    return server ? this.#redial.wait(placeOf(server)) : this.#origin.wait(this.#redial, false);
  }

  /** Names a target while its address is not known yet. */
  nameOf({ server }: Target): string {
    return server ? placeOf(server) : this.#origin.name;
  }

  /** Returns the address to connect to. */
  async resolve({ server }: Target, connected: boolean): Promise<ServerAddress> {
    return server ?? this.#origin.next(this.#redial, connected);
  }

  /** Call when it failed for an agent that has a session. */
  failed(place: string): void {
    this.#redial.failed(place);
  }

  /** Call when it failed for an agent without a session. */
  failedUrgently(place: string, failure?: UrgentFailure): void {
    this.#redial.failedUrgently(place, failure);
  }

  /** Call when a session was lost that lasted `lived` milliseconds. Returns whether to hurry, because it was the last one. */
  lost(place: string, lived: number, connected: boolean): boolean {
    this.#lost = place;
    this.#redial.lost(place, lived);
    const hurry = !connected && lived >= BRIEF;
    if (hurry) this.#redial.hasten();
    return hurry;
  }

  /**
   * Call when the server of a session that is `lived` milliseconds old is leaving. If it accepts agents only to say that, this counts
   * as a failure. Behind a load balancer, the address is the balancer's, and the next connection may lead elsewhere.
   */
  warned(place: string, lived: number): void {
    this.#lost = place;
    // In between, hubs behind one address are replaced quickly, which is no failure of the address.
    if (lived < BRIEF || lived >= STABLE) this.#redial.left(place, lived);
  }

  /** Call when the configured server led to one that is connected already; see `Origin`. */
  missed(mayBeSlow: boolean): void {
    this.#origin.missed(mayBeSlow);
  }

  /** Call when a session began. */
  reached(): void {
    this.#origin.afresh();
  }

  /** Call when these hubs started: what is known of their addresses is outdated. */
  started(hubs: readonly HubMember[]): void {
    for (const hub of hubs) {
      const server = serverOf(hub);
      if (!server) continue;
      const place = placeOf(server);
      this.#redial.forgive(place);
      // Otherwise, a herd would return by way of the other hubs, and connect twice.
      if (this.#lost === place) this.#lost = '';
    }
    this.#origin.afresh();
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
