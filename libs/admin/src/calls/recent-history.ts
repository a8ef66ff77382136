import type { adminApi } from '@isthmus/proto/admin';
import { getOrPut, LruMap } from '@isthmus/runtime';
import type { DialOutcome, DialRequest, PlaneEvents, Role } from '@isthmus/tunnel';
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

interface Slot {
  /** The time since the epoch of the clock, in slots. */
  readonly number: number;
  dials: number;
  failures: number;
  /** Of the last sample; undefined if nobody took one. */
  sessions: number | undefined;
  tunnels: number | undefined;
}

function emptySlot(number: number): Slot {
  return { number, dials: 0, failures: 0, sessions: undefined, tunnels: undefined };
}

/** The last dials in slots of equal length. Its size is bounded: 250 bytes a slot. */
export class DialHistory {
  readonly slotMs: number;
  readonly #count: number;
  readonly #startedAt: number;
  /** By their numbers, each in the place of the one that is too old by then. */
  readonly #slots: Slot[] = [];
  /** Of the slot in the same place: how many answered dials fell into each bucket. */
  readonly #latencies: Uint32Array;
  /** The number of the current slot. */
  #now: number;

  /** @param now milliseconds of one clock, here and below */
  constructor(slotMs: number, now: number) {
    this.slotMs = slotMs;
    this.#count = Math.ceil(ADMIN.historyMs / slotMs);
    this.#startedAt = now;
    this.#now = Math.floor(now / slotMs);
    this.#latencies = new Uint32Array(this.#count * BOUNDS.length);
  }

  count(now: number, ms: number, failed: boolean): void {
    const slot = this.#current(now);
    slot.dials++;
    // What fails at once, or at its deadline, says nothing of how fast answers are.
    if (failed) {
      slot.failures++;
      return;
    }
    const at = (slot.number % this.#count) * BOUNDS.length + bucketOf(ms);
    this.#latencies[at] = (this.#latencies[at] as number) + 1;
  }

  /** Notes how many there are now. The last sample of a slot stays. */
  sample(now: number, sessions: number, tunnels: number): void {
    Object.assign(this.#current(now), { sessions, tunnels });
  }

  /** Oldest first, the current slot last. */
  slots(now: number): adminApi.HistorySlot[] {
    const { number: last } = this.#current(now);
    const first = Math.max(Math.floor(this.#startedAt / this.slotMs), last - this.#count + 1);
    return Array.from({ length: last - first + 1 }, (_, index) => this.#slot(first + index));
  }

  /** Counts the last full slots, and the elapsed part of the current one. @param count fewer than all */
  over(count: number, now: number): Rate {
    const recent = this.slots(now).slice(-count - 1);
    const sum = (of: 'dials' | 'failures') => recent.reduce((total, slot) => total + slot[of], 0);
    const windowMs = Math.max(1, Math.min(now - this.#startedAt, count * this.slotMs + (now % this.slotMs)));
    return { windowMs, dials: sum('dials'), failures: sum('failures') };
  }

  #slot(number: number): adminApi.HistorySlot {
    const kept = this.#slots[number % this.#count];
    const slot = kept?.number === number ? kept : emptySlot(number);
    const { dials, failures, sessions, tunnels } = slot;
    const [p50Ms, p99Ms] = [0.5, 0.99].map((share) => quantile(this.#latenciesOf(slot), dials - failures, share));
    return { startMs: number * this.slotMs, dials, failures, p50Ms, p99Ms, sessions, tunnels };
  }

  #placeOf({ number }: Slot): number {
    return number % this.#count;
  }

  #latenciesOf(slot: Slot): Uint32Array {
    const at = this.#placeOf(slot) * BOUNDS.length;
    return this.#latencies.subarray(at, at + BOUNDS.length);
  }

  /** A clock that was set back changes nothing: the current slot stays the current one. */
  #current(now: number): Slot {
    this.#now = Math.max(this.#now, Math.floor(now / this.slotMs));
    const at = this.#now % this.#count;
    const kept = this.#slots[at];
    if (kept?.number === this.#now) return kept;
    const slot = emptySlot(this.#now);
    this.#slots[at] = slot;
    this.#latenciesOf(slot).fill(0);
    return slot;
  }
}

function bucketOf(ms: number): number {
  const bucket = Math.ceil(2 * Math.log2(ms / 0.1));
  return Math.min(Math.max(bucket, 0), BOUNDS.length - 1);
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

/** The last hour of a process, as its first role saw it: dials by all and by tenant, and how many sessions and tunnels there were. */
export class RecentHistory {
  readonly #all = new DialHistory(ADMIN.slotMs, Date.now());
  readonly #tenants = new LruMap<string, DialHistory>(ADMIN.historyTenants);
  readonly #role: Role;

  constructor(events: PlaneEvents, role: Role) {
    this.#role = role;
    events.on('dial:end', this.#ended.bind(this));
  }

  /** @param tenant unset: all */
  of(tenant?: string): { readonly slotMs: number; readonly slots: readonly adminApi.HistorySlot[] } {
    const now = Date.now();
    const history = tenant === undefined ? this.#all : this.#tenants.get(tenant);
    return { slotMs: history?.slotMs ?? ADMIN.tenantSlotMs, slots: history?.slots(now) ?? [] };
  }

  /** How many dials there were lately. @param slots so many full ones, and what has passed of the current one */
  rate(slots: number): Rate {
    return this.#all.over(slots, Date.now());
  }

  /** Samples what `count` returns, twice a slot, until the returned function is called. */
  follow(count: () => { readonly sessions: number; readonly tunnels: number }): () => void {
    const look = () => {
      const { sessions, tunnels } = count();
      this.#all.sample(Date.now(), sessions, tunnels);
    };
    look();
    const timer = setInterval(look, ADMIN.slotMs / 2).unref();
    return () => clearInterval(timer);
  }

  #ended(role: Role, { tenant, trial }: DialRequest, { ms, error }: DialOutcome): void {
    if (role !== this.#role || trial) return;
    const now = Date.now();
    const own = getOrPut(this.#tenants, tenant, () => new DialHistory(ADMIN.tenantSlotMs, now));
    this.#all.count(now, ms, error !== undefined);
    own.count(now, ms, error !== undefined);
  }
}
