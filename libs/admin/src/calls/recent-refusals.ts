import { inWords, type PlaneEvents, unlessProbed } from '@isthmus/tunnel';

/** Refusals that are told apart, of the last to come: many agents behind a wrong certificate, and not a port scan. */
const KEPT = 100;

/** After so long without another, one is forgotten, in milliseconds: agents that are refused come again within seconds. */
const FRESH_MS = 300_000;

/** Characters of a reason. */
const MAX_REASON = 300;

/** Who was refused at one port for one reason. */
export interface Refusal {
  readonly where: string;
  /** Where the last one came from. */
  readonly remote: string;
  readonly reason: string;
  readonly count: number;
  /** Both in milliseconds since the epoch. */
  readonly first: number;
  readonly last: number;
}

/** What was refused of late, for who looks at a program: the log may have turned over, or be out of reach. */
export class RecentRefusals {
  readonly #events: PlaneEvents;
  readonly #kept = new Map<string, Refusal>();

  constructor(events: PlaneEvents) {
    this.#events = events;
    const { probe, refused } = unlessProbed((where, remote, error) => this.#take(where, remote, error));
    events.on('probe', probe).on('refused', refused);
  }

  /** An operator's probe comes from there, and is nobody that was refused. */
  expect(remote: string): void {
    this.#events.emit('probe', remote);
  }

  /** The last first. */
  list(now = Date.now()): Refusal[] {
    return [...this.#kept.values()].filter(({ last }) => now - last < FRESH_MS).reverse();
  }

  #take(where: string, remote: string, error: Error): void {
    const now = Date.now();
    const reason = inWords(error).slice(0, MAX_REASON);
    // Each attempt comes from another port.
    const key = JSON.stringify([where, remote.replace(/:\d+$/, ''), reason]);
    const before = this.#kept.get(key);
    const known = before && now - before.last < FRESH_MS ? before : undefined;
    this.#kept.delete(key);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size >= KEPT && oldest !== undefined) this.#kept.delete(oldest);
    this.#kept.set(key, {
      where,
      remote,
      reason,
      count: (known?.count ?? 0) + 1,
      first: known?.first ?? now,
      last: now,
    });
  }
}
