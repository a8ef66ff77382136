import type { adminApi } from '@isthmus/proto/admin';
import { countIn, getOrPut, LruMap, Ring, SharedBudget } from '@isthmus/runtime';
import type { Destination, DialLog, DialOutcome, DialRequest, PlaneEvents, Role, TunnelInfo } from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';
import { FairRing } from './fair-ring.ts';

/** A dial as one role saw it. It references no stream, signal or callback of the dial. */
export interface SeenDial {
  readonly role: Role;
  readonly id: string;
  readonly tenant: string;
  readonly destination: Destination;
  readonly caller: DialRequest['caller'];
  readonly trial: DialRequest['trial'];
  readonly traceparent: string | undefined;
  /** Set only for the gateway role. In a process with both roles, the hub's dial carries it too. */
  readonly log: DialLog | undefined;
  /** The session that a gateway sent it to. Unset in the gateway's own view. */
  readonly session: string | undefined;
  /** When it started, in milliseconds of `performance.now()`. */
  readonly start: number;
  /** Unset while it runs. */
  readonly outcome: DialOutcome | undefined;
  /** From the answer to the destination's first byte. Set only for the gateway role, once the byte has passed. */
  readonly firstByteMs?: number;
}

/** @param again whether it was reported before, and its first byte has passed since */
type Watcher = (dial: SeenDial, again: boolean) => void;

/**
 * The dials of the last hour: those of a process's first role, with how many sessions and tunnels there were; and each of the latest. A dial
 * costs one small object and a few additions.
 */
export abstract class RecentDials {
  /** The last dials that ended, and beside them those that failed or were slow. */
  readonly #last = new Ring<SeenDial>(ADMIN.dials);
  readonly #remarkable = new FairRing<{ dial: SeenDial }>(ADMIN.remarkableDials);
  /** The kept dials whose tunnels are open. */
  readonly #open = new WeakMap<DialRequest, { firstByteMs?: number } & SeenDial>();
  /** Without an answer yet, by tenant. */
  readonly #pending = {
    gateway: new Map<string, number>(),
    hub: new Map<string, number>(),
    agent: new Map<string, number>(),
  };
  /** When callers that have proven who they are last dialled, by tenant and name. */
  readonly #callers = new LruMap<string, LruMap<string, number>>(ADMIN.callersTenants);
  readonly #watchers = new Set<Watcher>();
  /** Operators of one tenant get no more than they leave to others. */
  readonly #places = new SharedBudget(ADMIN.watchers, true);
  readonly #first: Role;
  #parked = 0;
  readonly #dials = new DialHistory(ADMIN.slotMs, Date.now());
  readonly #dialsOf = new LruMap<string, DialHistory>(ADMIN.historyTenants);

  /** @param first whose dials make the history */
  constructor(events: PlaneEvents, first: Role) {
    this.#first = first;
    events.on('dial:start', this.#began.bind(this));
    events.on('dial:end', this.#ended.bind(this));
    events.on('tunnel:first-byte', this.#answered.bind(this));
    events.on('tunnel:close', (tunnel, { how, by, error }, ageMs) => {
      if (tunnel.role === 'gateway' && how === 'cut') this.onCut(tunnel, { by, reason: error.message, ageMs });
    });
    events.on('dial:park', () => void this.#parked++);
    events.on('dial:unpark', () => void this.#parked--);
  }

  /** Called when a gateway's tunnel was cut. */
  protected abstract onCut(tunnel: TunnelInfo, how: Pick<adminApi.Cut, 'by' | 'reason' | 'ageMs'>): void;

  /** Yields the kept dials, in the order in which they ended. */
  *dials(): Iterable<SeenDial> {
    const last = new Set(this.#last);
    // A dial outside the last ones ended before all of them.
    for (const dial of this.#remarkable.of('dial')) if (!last.has(dial)) yield dial;
    yield* last;
  }

  /** Returns a dial that ended a moment ago. */
  find(id: string, role: Role): SeenDial | undefined {
    return [...this.#last].findLast((dial) => dial.id === id && dial.role === role);
  }

  /** Dials that wait for a session to open. */
  get parked(): number {
    return this.#parked;
  }

  /** Dials without an answer yet. @param tenant unset: of all */
  pending(role: Role, tenant?: string): number {
    const pending = this.#pending[role];
    return tenant === undefined ? [...pending.values()].reduce((sum, of) => sum + of, 0) : (pending.get(tenant) ?? 0);
  }

  /** The names of a tenant's callers that dialled lately, in order. */
  callersOf(tenant: string, now = performance.now()): string[] {
    const known = [...(this.#callers.get(tenant) ?? [])];
    return known.flatMap(([name, at]) => (now - at < ADMIN.callerMs ? [name] : [])).sort();
  }

  get watchers(): number {
    return this.#watchers.size;
  }

  /**
   * Calls `watcher` when a dial starts and when it ends. Returns what stops it; undefined if there are too many.
   * @param tenant whose operator watches; unset: the plane's
   */
  watch(watcher: Watcher, tenant?: string): (() => void) | undefined {
    if (!this.#places.take(1, tenant)) return undefined;
    this.#watchers.add(watcher);
    return () => {
      if (this.#watchers.delete(watcher)) this.#places.give(1, tenant);
    };
  }

  /** How many dials there were in the last hour, by slots. @param tenant unset: all */
  slots(tenant?: string): Pick<adminApi.GetHistoryResponse, 'slotMs' | 'slots'> {
    const dials = tenant === undefined ? this.#dials : this.#dialsOf.get(tenant);
    return { slotMs: dials?.slotMs ?? ADMIN.tenantSlotMs, slots: dials?.slots(Date.now()) ?? [] };
  }

  /** How many dials there were lately. @param slots so many full ones, and what has passed of the current one */
  rate(slots: number): ReturnType<DialHistory['over']> {
    return this.#dials.over(slots, Date.now());
  }

  /** Samples what `count` returns, twice a slot, until the returned function is called. */
  follow(count: () => { readonly sessions: number; readonly tunnels: number }): () => void {
    const look = () => this.#dials.sample(Date.now(), count());
    look();
    const timer = setInterval(look, ADMIN.slotMs / 2).unref();
    return () => clearInterval(timer);
  }

  #began(role: Role, dial: DialRequest): void {
    countIn(this.#pending[role], dial.tenant, 1);
    const { principal } = dial.caller ?? {};
    if (role === 'gateway' && principal?.role === 'caller') {
      const callers = getOrPut(this.#callers, principal.tenant, () => new LruMap(ADMIN.callersOfTenant));
      callers.set(principal.name, performance.now());
    }
    if (this.#watchers.size === 0) return;
    const seen = seenDial(role, dial, performance.now(), undefined);
    for (const watcher of this.#watchers) watcher(seen, false);
  }

  #ended(role: Role, dial: DialRequest, outcome: DialOutcome): void {
    const { tenant, trial } = dial;
    const { error, ms } = outcome;
    countIn(this.#pending[role], tenant, -1);
    const seen = seenDial(role, dial, performance.now() - ms, outcome);
    const now = Date.now();
    this.#last.push(seen);
    if (error || ms >= ADMIN.slowDialMs)
      this.#remarkable.keep({ kind: 'dial', owner: tenant, source: '', at: now, value: seen });
    if (role === 'gateway' && !error) this.#open.set(dial, seen);
    for (const watcher of this.#watchers) watcher(seen, false);
    if (role !== this.#first || trial) return;
    const own = getOrPut(this.#dialsOf, tenant, () => new DialHistory(ADMIN.tenantSlotMs, now));
    for (const history of [this.#dials, own]) history.count(now, ms, error !== undefined);
  }

  #answered({ dial }: TunnelInfo, ms: number): void {
    const seen = this.#open.get(dial);
    if (!seen) return;
    seen.firstByteMs = ms;
    for (const watcher of this.#watchers) watcher(seen, true);
  }
}

function seenDial(role: Role, dial: DialRequest, start: number, outcome: DialOutcome | undefined): SeenDial {
  const { id, tenant, destination, caller, trial, traceparent, session } = dial;
  const log = role === 'gateway' ? dial.log : undefined;
  return { role, id, tenant, destination, caller, trial, traceparent, log, session, start, outcome };
}

/** Upper bounds of the histogram's buckets, in milliseconds: two for each doubling, from .1 ms to 7 minutes. */
const BOUNDS = Array.from({ length: 44 }, (_, index) => 0.1 * 2 ** (index / 2));

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

  /** Counts the last full slots, and the elapsed part of the current one; less if counting began later. @param count fewer than all */
  over(count: number, now: number): { readonly windowMs: number; readonly dials: number; readonly failures: number } {
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
