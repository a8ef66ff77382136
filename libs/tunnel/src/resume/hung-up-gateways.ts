import { type Clock, getOrPut } from '@isthmus/runtime';
import { TOGETHER_MS } from './options.ts';

/** How a gateway's connection to a hub has ended. */
export interface GatewayLoss {
  /** The gateway, by its process. */
  readonly gateway: string;
  /** Whether something on the way reset it. */
  readonly reset: boolean;
}

interface Report {
  readonly at: number;
  readonly reset: boolean;
}

/**
 * Decides whether a gateway is dead or has only lost a connection. A process that dies closes all its connections at once, so all hubs
 * of this agent report it. The gateway may be alive, and resume its tunnels another way, if only some of them report it, if there is only
 * one hub, or if all connections were reset on the way.
 */
export class HungUpGateways {
  readonly #clock: Pick<Clock, 'now'>;
  readonly #dead: (gateway: string) => void;
  readonly #links = new Set<object>();
  /** By gateway: what hubs have reported, by the link to each. */
  readonly #reports = new Map<string, Map<object, Report>>();

  /** @param dead called for each gateway that is dead */
  constructor(clock: Pick<Clock, 'now'>, dead: (gateway: string) => void) {
    this.#clock = clock;
    this.#dead = dead;
  }

  /** Call when a link to a hub opens. */
  came(link: object): void {
    this.#links.add(link);
  }

  went(link: object): void {
    this.#links.delete(link);
  }

  /** Call when the hub of a link has lost its connection to a gateway. */
  report({ gateway, reset }: GatewayLoss, link: object): void {
    const now = this.#clock.now();
    this.#forget(now - TOGETHER_MS);
    const reports = getOrPut(this.#reports, gateway, () => new Map<object, Report>());
    reports.set(link, { at: now, reset });
    if (reports.size < 2 || [...this.#links].some((each) => !reports.has(each))) return;
    if ([...reports.values()].every((report) => report.reset)) return;
    this.#reports.delete(gateway);
    this.#dead(gateway);
  }

  #forget(before: number): void {
    for (const [gateway, reports] of this.#reports) {
      for (const [link, { at }] of reports) if (at < before) reports.delete(link);
      if (reports.size === 0) this.#reports.delete(gateway);
    }
  }
}
