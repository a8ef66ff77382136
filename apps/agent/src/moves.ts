import { Backoff, type Clock } from '@isthmus/runtime';
import type { HubMember } from '@isthmus/transport';

/** How much longer a session with tunnels stays, as a part of the time of idle ones. */
const BUSY_PART = 2 / 3;

/** Attempts to reach a hub before a longer pause. Behind a load balancer, most attempts lead to another hub. */
const MAX_TRIES = 16;

/** That pause, in spreads; a spread counts as at least this many milliseconds. */
const REST_SPREADS = 10;
const MIN_REST = 1000;

/** Pause between attempts, in milliseconds: at first, and at most. */
const RETRY_FIRST = 250;
const RETRY_CAP = 2000;

interface Move {
  readonly generation: number;
  readonly address: string;
  /** When to make it, if the session that it displaces has no tunnels. */
  due: number;
  tries: number;
  backoff: Backoff;
}

/**
 * When an agent moves its sessions to better hubs (docs/LIMITS.md, "Rebalancing"). Each agent draws its time for each hub evenly from
 * the same interval, so a constant part of the agents moves each second. Later changes do not affect times that were already drawn.
 */
export class Moves {
  readonly #spread: number;
  readonly #clock: Clock;
  readonly #moves = new Map<string, Move>();

  /** @param spread the interval, in milliseconds */
  constructor(spread: number, clock: Clock) {
    this.#spread = spread;
    this.#clock = clock;
  }

  /** @param better all hubs to move to. Plans for others are dropped */
  plan(better: readonly HubMember[]): void {
    const hubIds = new Set(better.map(({ hubId }) => hubId));
    for (const hubId of this.#moves.keys()) if (!hubIds.has(hubId)) this.#moves.delete(hubId);
    for (const { hubId, generation, address } of better) {
      const known = this.#moves.get(hubId);
      if (known?.generation !== generation || known.address !== address) this.#draw(hubId, generation, address);
    }
  }

  /**
   * Returns the hubs whose time has come.
   * @param busy whether the session to displace carries tunnels
   */
  due(busy: boolean): string[] {
    return [...this.#moves.keys()].filter((hubId) => this.#left(hubId, busy) <= 0);
  }

  /** Milliseconds until there is something to do. Infinite if nothing is planned. */
  wait(busy: boolean): number {
    return Math.min(...[...this.#moves.keys()].map((hubId) => this.#left(hubId, busy)));
  }

  /** Call when the hub was not reached. */
  failed(hubId: string): void {
    const move = this.#moves.get(hubId);
    if (!move) return;
    if (++move.tries % MAX_TRIES === 0) {
      move.backoff.reset();
      move.due = this.#clock.now() + Math.max(this.#spread, MIN_REST) * REST_SPREADS * (0.5 + this.#clock.random());
    } else {
      move.due = this.#clock.now() + move.backoff.next();
    }
  }

  #draw(hubId: string, generation: number, address: string): void {
    const { random, now } = this.#clock;
    const backoff = new Backoff(RETRY_FIRST, RETRY_CAP, random);
    this.#moves.set(hubId, { generation, address, due: now() + random() * this.#spread, tries: 0, backoff });
  }

  #left(hubId: string, busy: boolean): number {
    const { due, tries } = this.#moves.get(hubId) as Move;
    return due + (busy && tries === 0 ? this.#spread * BUSY_PART : 0) - this.#clock.now();
  }
}
