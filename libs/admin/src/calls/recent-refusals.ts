import { LruMap } from '@isthmus/runtime';
import { inWords, type PlaneEvents, unlessProbed } from '@isthmus/tunnel';

/** Refusals to keep: enough for many agents with a wrong certificate, not for a port scan. */
const MAX_REFUSALS = 100;

/** A refusal without another one for so long is over, in milliseconds: the next one counts anew. Refused agents return within seconds. */
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

/** Recent refusals, for operators: the log may have been rotated, or be out of reach. */
export class RecentRefusals {
  readonly #events: PlaneEvents;
  readonly #kept = new LruMap<string, Refusal>(MAX_REFUSALS);

  constructor(events: PlaneEvents) {
    this.#events = events;
    const { probe, refused } = unlessProbed((where, remote, error) => this.#take(where, remote, error));
    events.on('probe', probe).on('refused', refused);
  }

  /** An operator's probe comes from there, so its refusal is not kept. */
  expect(remote: string): void {
    this.#events.emit('probe', remote);
  }

  /** The last first. @param withinMs how long ago they may be, in milliseconds */
  list(withinMs = FRESH_MS, now = Date.now()): Refusal[] {
    return [...this.#kept.values()].filter(({ last }) => now - last < withinMs).reverse();
  }

  #take(where: string, remote: string, error: Error): void {
    const now = Date.now();
    const reason = inWords(error).slice(0, MAX_REASON);
    // Each attempt comes from another port.
    const key = JSON.stringify([where, remote.replace(/:\d+$/, ''), reason]);
    const before = this.#kept.get(key);
    const known = before && now - before.last < FRESH_MS ? before : undefined;
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
