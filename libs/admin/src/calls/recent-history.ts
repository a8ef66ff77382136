import type { adminApi } from '@isthmus/proto/admin';
import { ADMIN } from '../defaults.ts';

/** Upper bounds of the histogram's buckets, in milliseconds: two for each doubling, from .1 ms to 7 minutes. */
const BOUNDS = Array.from({ length: 44 }, (_, index) => 0.1 * 2 ** (index / 2));

/** Number of dials that were answered in a window that ends now. */
interface Rate {
  /** Length of the window: what was asked for, or the time since counting started if that is shorter. */
  readonly windowMs: number;
  readonly dials: number;
  readonly failures: number;
}

/** The last dials in slots of equal length. Its size is bounded: 150 bytes a slot. */
export class DialHistory {
  readonly slotMs: number;
  readonly #startedAt: number;
  /** Those in which there was something, the oldest first. The last one is counted now; the others are as they are told. */
  readonly #slots: adminApi.HistorySlot[] = [];
  /** Of the last one: how many answered dials fell into each bucket. */
  readonly #latencies = new Uint32Array(BOUNDS.length);

  /** @param now milliseconds of one clock, here and below */
  constructor(slotMs: number, now: number) {
    this.slotMs = slotMs;
    this.#startedAt = now;
  }

  count(now: number, ms: number, failed: boolean): void {
    const slot = this.#current(now);
    slot.dials++;
    // What fails at once, or at its deadline, says nothing of how fast answers are.
    if (failed) slot.failures++;
    else {
      const bucket = Math.ceil(2 * Math.log2(ms / 0.1));
      (this.#latencies[Math.min(Math.max(bucket, 0), BOUNDS.length - 1)] as number)++;
    }
  }

  /** Notes how many there are now. The last sample of a slot stays. */
  sample(now: number, counts: { readonly sessions: number; readonly tunnels: number }): void {
    Object.assign(this.#current(now), counts);
  }

  /** Oldest first, the current slot last. */
  slots(now: number): adminApi.HistorySlot[] {
    const { startMs: last } = this.#current(now);
    this.#measure();
    const first = Math.max(this.#startOf(this.#startedAt), last - this.#most * this.slotMs + this.slotMs);
    const kept = new Map(this.#slots.map((slot) => [slot.startMs, slot]));
    return Array.from({ length: (last - first) / this.slotMs + 1 }, (_, index) => {
      const startMs = first + index * this.slotMs;
      return kept.get(startMs) ?? { startMs, dials: 0, failures: 0 };
    });
  }

  /** Counts the last full slots, and the elapsed part of the current one. @param count fewer than all */
  over(count: number, now: number): Rate {
    const recent = this.slots(now).slice(-count - 1);
    const sum = (of: 'dials' | 'failures') => recent.reduce((total, slot) => total + slot[of], 0);
    const windowMs = Math.max(1, Math.min(now - this.#startedAt, count * this.slotMs + (now % this.slotMs)));
    return { windowMs, dials: sum('dials'), failures: sum('failures') };
  }

  get #most(): number {
    return Math.ceil(ADMIN.historyMs / this.slotMs);
  }

  #startOf(ms: number): number {
    return ms - (ms % this.slotMs);
  }

  /** A clock that was set back changes nothing: the current slot stays the current one. */
  #current(now: number): adminApi.HistorySlot {
    const last = this.#slots.at(-1);
    if (last && now < last.startMs + this.slotMs) return last;
    this.#measure();
    this.#latencies.fill(0);
    const slot = { startMs: this.#startOf(now), dials: 0, failures: 0 };
    this.#slots.push(slot);
    if (this.#slots.length > this.#most) this.#slots.shift();
    return slot;
  }

  /** Says of the last slot how long its answers took. */
  #measure(): void {
    const last = this.#slots.at(-1);
    if (!last) return;
    const answered = last.dials - last.failures;
    last.p50Ms = quantile(this.#latencies, answered, 0.5);
    last.p99Ms = quantile(this.#latencies, answered, 0.99);
  }
}

/** Returns the middle of the bucket that holds the quantile. */
function quantile(counts: Uint32Array, total: number, share: number): number | undefined {
  if (total === 0) return undefined;
  let left = Math.ceil(total * share);
  const bucket = counts.findIndex((count) => {
    left -= count;
    return left <= 0;
  });
  return (BOUNDS[bucket] as number) * 2 ** -0.25;
}
