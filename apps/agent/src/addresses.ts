import type { HubMember } from '@isthmus/transport';
import { formatDestination, parseDestination } from '@isthmus/tunnel';
import { Origin, type OriginOptions } from './origin.ts';
import { Redial } from './redial.ts';
import type { ServerAddress } from './uplink.ts';

/** A server that ends connections sooner than this is not hastened back to, in milliseconds. */
const BRIEF = 1000;

export interface Target {
  /** Unset for the configured server, which may lead to any hub. */
  readonly server?: ServerAddress;
  /** The only hub that is wanted. */
  readonly only?: string;
}

/** Where an agent may connect: to the plane's hubs by rank, and to the configured server; later to what failed. */
export class Addresses {
  readonly #origin: Origin;
  readonly #redial: Redial;
  /** Where the last session was lost, or will be. */
  #lost = '';

  constructor(options: OriginOptions) {
    this.#origin = new Origin(options);
    this.#redial = new Redial(options.first, options.cap, options.clock);
  }

  /**
   * Best first, each with the milliseconds until it may be tried. Where a session was just lost it is least likely to work.
   * @param connected whether the agent has any session that stays
   * @param without targets that are out of the question
   */
  rank(
    hubs: readonly HubMember[],
    connected: boolean,
    without: readonly Target[],
  ): (Target & { readonly wait: number })[] {
    const excluded = new Set(without.map(({ server }) => server && placeOf(server)));
    const targets = hubs
      .flatMap((hub) => serverOf(hub) ?? [])
      .map((server) => ({ server, place: placeOf(server) }))
      .filter(({ place }) => !excluded.has(place))
      .map(({ server, place }) => ({ server, wait: this.#redial.wait(place), last: Number(place === this.#lost) }))
      .sort((a, b) => a.last - b.last);
    return excluded.has(undefined) ? targets : [...targets, { wait: this.#origin.wait(this.#redial, connected) }];
  }

  /** What to call a target while its address is not known yet. */
  nameOf({ server }: Target): string {
    return server ? placeOf(server) : this.#origin.name;
  }

  /** The address to connect to. */
  async resolve({ server }: Target): Promise<ServerAddress> {
    return server ?? this.#origin.next(this.#redial);
  }

  failed(place: string): void {
    this.#redial.failed(place);
  }

  /** A session was lost that lasted `lived` milliseconds. @returns whether to hurry: it was the last one */
  lost(place: string, lived: number, connected: boolean): boolean {
    this.#lost = place;
    this.#redial.lost(place, lived);
    const hurry = !connected && lived >= BRIEF;
    if (hurry) this.#redial.hasten();
    return hurry;
  }

  /** The server of a session says that it goes away. */
  warned(place: string): void {
    this.#lost = place;
  }

  /** The configured server led to one that is connected already; see `Origin`. */
  missed(mayBeSlow: boolean): void {
    this.#origin.missed(mayBeSlow);
  }

  /** A session began. */
  reached(): void {
    this.#origin.afresh();
  }

  /** These hubs started: what is known of their addresses is not true any more. */
  started(hubs: readonly HubMember[]): void {
    for (const hub of hubs) {
      const server = serverOf(hub);
      if (server) this.#redial.forgive(placeOf(server));
    }
    this.#origin.afresh();
  }
}

/** Undefined for a hub to which only the configured server leads. */
export function serverOf({ address }: HubMember): ServerAddress | undefined {
  if (address === '') return undefined;
  const { host, port } = parseDestination(address);
  return { address: host, port };
}

export function placeOf({ address, port }: ServerAddress): string {
  return formatDestination({ host: address, port });
}
