import type { adminApi } from '@isthmus/proto/admin';
import { getOrPut, LruMap } from '@isthmus/runtime';
import type { DialOutcome, DialRequest, PlaneEvents, Role } from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';

/** Upper bounds of the histogram's buckets, in milliseconds: two for each doubling, from .1 ms to 7 minutes. */
const BOUNDS = Array.from({ length: 44 }, (_, index) => 0.1 * 2 ** (index / 2));

/** In place of a sample that nobody took. */
const NOT_SAMPLED = 0xffffffff;

/** Number of dials that were answered in a window that ends now. */
interface Rate {
  /** Length of the window: what was asked for, or the time since counting started if that is shorter. */
  readonly windowMs: number;
  readonly dials: number;
  readonly failures: number;
}

/** The last dials in slots of equal length. Its size is fixed: 220 bytes a slot. */
export class DialHistory {
  readonly slotMs: number;
  readonly #count: number;
  readonly #startedAt: number;
  readonly #start: number;
  readonly #dials: Uint32Array;
  readonly #failures: Uint32Array;
  readonly #sessions: Uint32Array;
  readonly #tunnels: Uint32Array;
  readonly #latencies: Uint32Array;
  /** The number of the current slot. */
  #now: number;

  /** @param now milliseconds of one clock, here and below */
  constructor(slotMs: number, now: number, allMs = ADMIN.historyMs) {
    const count = Math.ceil(allMs / slotMs);
    this.slotMs = slotMs;
    this.#count = count;
    this.#startedAt = now;
    this.#now = Math.floor(now / slotMs);
    this.#start = this.#now;
    this.#dials = new Uint32Array(count);
    this.#failures = new Uint32Array(count);
    this.#sessions = new Uint32Array(count).fill(NOT_SAMPLED);
    this.#tunnels = new Uint32Array(count).fill(NOT_SAMPLED);
    this.#latencies = new Uint32Array(count * BOUNDS.length);
  }

  count(now: number, ms: number, failed: boolean): void {
    const at = this.#advance(now);
    add(this.#dials, at);
    if (failed) add(this.#failures, at);
    add(this.#latencies, at * BOUNDS.length + bucketOf(ms));
  }

  /** Notes how many there are now. The last sample of a slot stays. */
  sample(now: number, sessions: number, tunnels: number): void {
    const at = this.#advance(now);
    this.#sessions[at] = sessions;
    this.#tunnels[at] = tunnels;
  }

  /** Oldest first, the current slot last. */
  slots(now: number): adminApi.HistorySlot[] {
    this.#advance(now);
    const first = Math.max(this.#start, this.#now - this.#count + 1);
    return Array.from({ length: this.#now - first + 1 }, (_, index) => this.#slot(first + index));
  }

  /** Counts the last full slots, and the elapsed part of the current one. @param count fewer than all */
  over(count: number, now: number): Rate {
    const recent = this.slots(now).slice(-count - 1);
    const sum = (of: 'dials' | 'failures') => recent.reduce((total, slot) => total + slot[of], 0);
    const windowMs = Math.max(1, Math.min(now - this.#startedAt, count * this.slotMs + (now % this.slotMs)));
    return { windowMs, dials: sum('dials'), failures: sum('failures') };
  }

  #slot(number: number): adminApi.HistorySlot {
    const at = number % this.#count;
    const latencies = this.#latencies.subarray(at * BOUNDS.length, (at + 1) * BOUNDS.length);
    const dials = this.#dials[at] as number;
    return {
      startMs: number * this.slotMs,
      dials,
      failures: this.#failures[at] as number,
      p50Ms: quantile(latencies, dials, 0.5),
      p99Ms: quantile(latencies, dials, 0.99),
      sessions: sampled(this.#sessions[at]),
      tunnels: sampled(this.#tunnels[at]),
    };
  }

  /** Clears the slots that began since the last call. A clock that was set back changes the current slot. @returns where its counts are */
  #advance(now: number): number {
    const current = Math.floor(now / this.slotMs);
    const passed = Math.min(current - this.#now, this.#count);
    for (let step = 0; step < passed; step++) this.#clear((current - step) % this.#count);
    if (passed > 0) this.#now = current;
    return this.#now % this.#count;
  }

  #clear(at: number): void {
    this.#dials[at] = 0;
    this.#failures[at] = 0;
    this.#sessions[at] = NOT_SAMPLED;
    this.#tunnels[at] = NOT_SAMPLED;
    this.#latencies.fill(0, at * BOUNDS.length, (at + 1) * BOUNDS.length);
  }
}

function add(counts: Uint32Array, at: number): void {
  counts[at] = (counts[at] as number) + 1;
}

function sampled(value: number | undefined): number | undefined {
  return value === NOT_SAMPLED ? undefined : value;
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
    events.on('dial:end', (at, dial, outcome) => this.#ended(at, dial, outcome));
  }

  /** @param tenant unset: all */
  of(tenant?: string): { readonly slotMs: number; readonly slots: readonly adminApi.HistorySlot[] } {
    const now = Date.now();
    const history = tenant === undefined ? this.#all : this.#tenants.get(tenant);
    return { slotMs: history?.slotMs ?? ADMIN.tenantSlotMs, slots: history?.slots(now) ?? [] };
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

  #ended(role: Role, { tenant }: DialRequest, { ms, error }: DialOutcome): void {
    if (role !== this.#role) return;
    const now = Date.now();
    const own = getOrPut(this.#tenants, tenant, () => new DialHistory(ADMIN.tenantSlotMs, now));
    for (const history of [this.#all, own]) history.count(now, ms, error !== undefined);
  }
}
