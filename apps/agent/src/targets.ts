import { resolveName, within } from '@isthmus/runtime';
import type { HubMember } from '@isthmus/transport';
import { formatDestination, parseDestination } from '@isthmus/tunnel';
import { NEVER, type Reconnect } from './reconnect.ts';
import { UPKEEP } from './upkeep-defaults.ts';
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
      if (!(await within(found, UPKEEP.lookupTimeout)))
        throw new Error(`${this.#host} did not resolve within ${UPKEEP.lookupTimeout / 1000} s`);
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

export interface RankOptions {
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
