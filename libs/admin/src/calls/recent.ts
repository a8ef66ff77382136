import type { adminApi } from '@isthmus/proto/admin';
import { countIn, getOrPut, LruMap, Ring, SharedBudget } from '@isthmus/runtime';
import {
  type DialOutcome,
  type DialRequest,
  Distrusted,
  formatDestination,
  type HoldCut,
  inWords,
  type PlaneEvents,
  type Role,
  type SessionInfo,
  type TunnelInfo,
  unlessProbed,
} from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';
import { FairRing } from './fair-ring.ts';
import { DialHistory } from './recent-history.ts';
import type { Loss } from './recent-losses.ts';
import { type SeenDial, seenDial } from './seen-dials.ts';

/** What happened to an agent's session with this hub, to this gateway's link to a hub, or to the registry. */
export interface SeenEvent extends Omit<adminApi.Event, 'type' | 'role'> {
  readonly type: 'came' | 'drains' | 'went' | 'registry_up' | 'registry_down';
  /** Unset for the registry. */
  readonly role?: 'agent' | 'hub' | 'gateway';
}

interface Kinds {
  readonly event: SeenEvent;
  readonly cut: adminApi.Cut;
  readonly refusal: adminApi.Refusal;
  readonly loss: Loss;
  readonly dial: SeenDial;
}

/** @param again whether it was reported before, and its first byte has passed since */
type Watcher = (dial: SeenDial, again: boolean) => void;

/** The cuts of the last hour: the last first. */
interface CutsOfHour {
  readonly cuts: readonly adminApi.Cut[];
  /** How many of the hour are not kept. */
  readonly forgotten: number;
}

/**
 * The last hour of a process, as `isthmus events`, `cuts`, `status`, `watch` and the console show it: what happened, whose log may have been
 * rotated, or be out of reach; the dials of its first role, with how many sessions and tunnels there were; and each of the latest dials. A dial
 * costs one small object and a few additions. Text is formatted only on request.
 */
export class Recent {
  readonly #plane: PlaneEvents;
  /** What this process saw: agents, hubs and the registry that came and went, cuts, and who has not come back. */
  readonly #seen = new FairRing<Kinds>(ADMIN.seen, ADMIN.eventsOfOne);
  /** What strangers cause and callers claim takes none of its places: refusals, and the cuts that `isthmus hold` tells. */
  readonly #told = new FairRing<Kinds>(ADMIN.told);
  /** The last dials that ended, and beside them those that failed or were slow. */
  readonly #last = new Ring<SeenDial>(ADMIN.dials);
  readonly #remarkable = new FairRing<Kinds>(ADMIN.remarkableDials);
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
  #parked = 0;
  readonly #dials = new DialHistory(ADMIN.slotMs, Date.now());
  readonly #dialsOf = new LruMap<string, DialHistory>(ADMIN.historyTenants);

  /** @param own whose start is the first event. Without it, dials are a gateway's */
  constructor(events: PlaneEvents, own?: Pick<SeenEvent, 'id'> & { readonly role: Role }) {
    this.#plane = events;
    if (own) this.#event({ ...own, type: 'came', tenant: '', hubId: '', address: '', reason: 'started' });
    events.on('session:open', (session) => this.#agent('came', session));
    events.on('session:drain', (session) => this.#agent('drains', session));
    events.on('session:close', (session, reason) => this.#agent('went', session, reason));
    events.on('peer:open', (id, address) => this.#hub('came', id, address));
    events.on('peer:close', (id, address, reason) => this.#hub('went', id, address, reason));
    events.on('registry', (state, reason) =>
      this.#event({ type: `registry_${state}`, tenant: '', id: '', hubId: '', address: '', reason }),
    );
    events.on('tunnel:close', (tunnel, { how, by, error }, ageMs) => {
      if (tunnel.role !== 'gateway' || how !== 'cut') return;
      this.#cut(this.#seen, cutOf(tunnel, { by, reason: error.message, ageMs, atMs: Date.now() }));
    });
    const first = own?.role ?? 'gateway';
    events.on('dial:start', this.#began.bind(this));
    events.on('dial:end', (role, dial, outcome) => {
      this.#ended(role, dial, outcome);
      if (role === first && !dial.trial) this.#dialled(dial.tenant, outcome.ms, outcome.error !== undefined);
    });
    events.on('tunnel:first-byte', ({ dial }, ms) => this.#answered(dial, ms));
    events.on('dial:park', () => void this.#parked++);
    events.on('dial:unpark', () => void this.#parked--);
    events.on('hold:cut', ({ dial, agentId, gateway, hold, by, reason, ms: ageMs, agoMs, up, down }) => {
      if (agoMs >= ADMIN.historyMs) return;
      const cut = cutOf({ dial, agentId, hubId: '', up, down }, { by, reason, ageMs, atMs: Date.now() - agoMs });
      this.#cut(this.#told, { ...cut, gateway, hold });
    });
    const { probe, refused } = unlessProbed((where, remote, error) => this.#refusal(where, remote, error));
    events.on('probe', probe).on('refused', refused);
  }

  /** The oldest first, and behind them who has not come back. */
  events(now = Date.now()): SeenEvent[] {
    const lost = [...this.#seen.of('loss')].map(({ remote: address, identifiers: _, left, ...loss }): SeenEvent => {
      return { ...loss, type: 'went', address, reason: loss.reason || (left ? 'it was stopped' : 'without a word') };
    });
    return [...this.#seen.of('event'), ...lost].filter(({ atMs }) => now - atMs < ADMIN.historyMs);
  }

  /** @param tenant unset: all */
  cuts(tenant?: string, now = Date.now()): CutsOfHour {
    const since = now - ADMIN.historyMs;
    const rings = [this.#seen, this.#told];
    const cuts = rings.flatMap((ring) => [...ring.of('cut', tenant)]).filter(({ atMs }) => atMs >= since);
    return {
      cuts: cuts.sort((a, b) => b.atMs - a.atMs),
      forgotten: rings.reduce((sum, ring) => sum + ring.forgotten('cut', tenant, since), 0),
    };
  }

  /** Gateways, hubs and agents that went away and have not come back, the last first. */
  losses(now = Date.now()): Loss[] {
    const all = [...this.#seen.of('loss')].filter(({ atMs }) => now - atMs < ADMIN.historyMs);
    return all.reverse().slice(0, ADMIN.losses);
  }

  lost(loss: Omit<Loss, 'atMs'>): void {
    this.found(loss);
    const value = { ...loss, reason: loss.reason.slice(0, ADMIN.keptReason), atMs: Date.now() };
    this.#seen.keep({ kind: 'loss', owner: loss.tenant, source: lossOf(loss), at: value.atMs, value });
  }

  found(who: Parameters<typeof lossOf>[0]): void {
    this.#seen.take(lossOf(who));
  }

  /** The last first. @param withinMs how long ago they may be, in milliseconds */
  refusals(withinMs = ADMIN.refusalMs, now = Date.now()): adminApi.Refusal[] {
    const all = [...this.#told.of('refusal')].filter(({ lastMs }) => now - lastMs < withinMs);
    const ofPort = new Map<string, number>();
    return all.reverse().filter(({ where }) => {
      const count = (ofPort.get(where) ?? 0) + 1;
      ofPort.set(where, count);
      return count <= ADMIN.refusalsOfPort;
    });
  }

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

  /** An operator's probe comes from there, so its refusal is not kept. */
  expect(remote: string): void {
    this.#plane.emit('probe', remote);
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
    countIn(this.#pending[role], dial.tenant, -1);
    const seen = seenDial(role, dial, performance.now() - outcome.ms, outcome);
    this.#last.push(seen);
    if (outcome.error || outcome.ms >= ADMIN.slowDialMs)
      this.#remarkable.keep({ kind: 'dial', owner: dial.tenant, source: '', at: Date.now(), value: seen });
    if (role === 'gateway' && !outcome.error) this.#open.set(dial, seen);
    for (const watcher of this.#watchers) watcher(seen, false);
  }

  #answered(dial: DialRequest, ms: number): void {
    const seen = this.#open.get(dial);
    if (!seen) return;
    seen.firstByteMs = ms;
    for (const watcher of this.#watchers) watcher(seen, true);
  }

  #dialled(tenant: string, ms: number, failed: boolean): void {
    const now = Date.now();
    this.#dials.count(now, ms, failed);
    getOrPut(this.#dialsOf, tenant, () => new DialHistory(ADMIN.tenantSlotMs, now)).count(now, ms, failed);
  }

  #agent(type: SeenEvent['type'], { tenant, agentId: id, hubId, remote: address }: SessionInfo, reason = ''): void {
    this.#event({ type, role: 'agent', tenant, id, hubId, address, reason });
  }

  #hub(type: SeenEvent['type'], id: string, address: string, reason = ''): void {
    this.#event({ type, role: 'hub', tenant: '', id, hubId: '', address, reason });
  }

  #event(event: Omit<SeenEvent, 'atMs'>): void {
    const { role, tenant: owner, id } = event;
    const value = { ...event, reason: event.reason.slice(0, ADMIN.keptReason), atMs: Date.now() };
    this.#seen.keep({ kind: 'event', owner, source: JSON.stringify([role, owner, id]), at: value.atMs, value });
  }

  #cut(ring: FairRing<Kinds>, value: adminApi.Cut): void {
    ring.keep({ kind: 'cut', owner: value.tenant, source: '', at: value.atMs, value });
  }

  #refusal(where: string, remote: string, error: Error): void {
    const now = Date.now();
    const reason = inWords(error).slice(0, ADMIN.keptReason);
    // Each attempt comes from another port.
    const source = JSON.stringify([where, remote.replace(/:\d+$/, ''), reason]);
    const before = this.#told.take(source)?.value as adminApi.Refusal | undefined;
    const known = before && now - before.lastMs < ADMIN.refusalMs ? before : undefined;
    const [count, firstMs] = known ? [known.count + 1, known.firstMs] : [1, now];
    const value = { where, remote, reason, count, firstMs, lastMs: now, distrusted: error instanceof Distrusted };
    this.#told.keep({ kind: 'refusal', owner: where, source, at: now, value });
  }
}

function lossOf({ role, tenant, id }: Pick<Loss, 'role' | 'tenant' | 'id'>): string {
  return JSON.stringify(['lost', role, tenant, id]);
}

/** What is cut: a tunnel's names and counts, without its buffers. */
type Cuttable = Pick<TunnelInfo, 'agentId' | 'hubId' | 'up' | 'down'> & Pick<HoldCut, 'dial'>;

type How = Pick<adminApi.Cut, 'by' | 'reason' | 'ageMs' | 'atMs'>;

/** A cut as this gateway saw it. */
function cutOf({ dial, agentId, hubId, up, down }: Cuttable, { reason, ageMs, ...how }: How): adminApi.Cut {
  return {
    ...how,
    reason: reason.slice(0, ADMIN.keptReason),
    dialId: dial.id,
    tenant: dial.tenant,
    destination: formatDestination(dial.destination),
    caller: dial.caller?.identity ?? '',
    agentId,
    hubId,
    ageMs: Math.round(ageMs),
    bytesUp: up,
    bytesDown: down,
    traceId: dial.traceparent?.split('-')[1] ?? '',
    hold: '',
    gateway: '',
  };
}
