import type { Clock } from '@isthmus/runtime';
import { getOrPut } from '../get-or-put.ts';

/** Hubs see a gateway die within this time of each other, in milliseconds. Busy ones need some of it. */
const TOGETHER_MS = 1000;

/**
 * Tells a gateway's death from a lost link. A process that dies closes all its connections at once, so every hub to which the agent has
 * a link reports it. If only some do, or there is only one, the gateway may live, and goes on with its tunnels another way.
 */
export class HungUpGateways {
  readonly #clock: Pick<Clock, 'now'>;
  readonly #dead: (gateway: string) => void;
  readonly #links = new Set<object>();
  /** By gateway: whose hubs have reported it, and when. */
  readonly #reports = new Map<string, Map<object, number>>();

  /** @param dead called with each gateway that is found to be dead */
  constructor(clock: Pick<Clock, 'now'>, dead: (gateway: string) => void) {
    this.#clock = clock;
    this.#dead = dead;
  }

  /** There is a link to a hub. */
  came(link: object): void {
    this.#links.add(link);
  }

  went(link: object): void {
    this.#links.delete(link);
  }

  /** The gateway has closed its connection to a link's hub. */
  report(gateway: string, link: object): void {
    const now = this.#clock.now();
    this.#forget(now - TOGETHER_MS);
    const reports = getOrPut(this.#reports, gateway, () => new Map<object, number>());
    reports.set(link, now);
    if (reports.size < 2 || [...this.#links].some((each) => !reports.has(each))) return;
    this.#reports.delete(gateway);
    this.#dead(gateway);
  }

  #forget(before: number): void {
    for (const [gateway, reports] of this.#reports) {
      for (const [link, at] of reports) if (at < before) reports.delete(link);
      if (reports.size === 0) this.#reports.delete(gateway);
    }
  }
}
