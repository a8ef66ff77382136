import type { adminApi } from '@isthmus/proto/admin';
import { Grouped, getOrPut, LruMap } from '@isthmus/runtime';
import {
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
import { DialHistory } from './recent-history.ts';
import type { Loss } from './recent-losses.ts';

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
}

/** Something that happened, and with what it shares its places. */
interface Item<Kind extends keyof Kinds = keyof Kinds> {
  readonly kind: Kind;
  /** A tenant; of a refusal the port. */
  readonly owner: string;
  /** What may happen again and again: an agent or hub, a peer that is refused. Empty if each is by itself. */
  readonly source: string;
  /** In milliseconds since the epoch. */
  readonly at: number;
  readonly value: Kinds[Kind];
}

/**
 * What happened lately, up to so much. Where it is too much, those of a kind and owner that have most lose the first of them, so that no
 * tenant hides what is of another, and no port what was refused at another; and a source loses its own first. It is kept in the order in
 * which it came: what was told late happened before others, and costs no more than they do.
 */
class Ring {
  readonly #most: number;
  readonly #ofSource: number;
  readonly #byOwner = new Grouped<Item>();
  readonly #bySource = new Grouped<Item>();
  /** How many of each kind and owner are not kept, and when the last of them happened. */
  readonly #forgotten: Map<string, { readonly count: number; readonly at: number }>;

  constructor(most: number, ofSource: number) {
    this.#most = most;
    this.#ofSource = ofSource;
    this.#forgotten = new LruMap(most);
  }

  /** In the order in which they came. */
  *of<Kind extends keyof Kinds>(kind: Kind, owner?: string): Iterable<Kinds[Kind]> {
    const items = owner === undefined ? this.#byOwner.all : (this.#byOwner.of(`${kind} ${owner}`) ?? []);
    for (const item of items) if (item.kind === kind) yield item.value as Kinds[Kind];
  }

  /** How many of the hour are not kept. */
  forgotten(kind: keyof Kinds, owner: string | undefined, since: number): number {
    let sum = 0;
    for (const [key, { count, at }] of this.#forgotten) {
      if (at < since) this.#forgotten.delete(key);
      else if (owner === undefined ? key.startsWith(`${kind} `) : key === `${kind} ${owner}`) sum += count;
    }
    return sum;
  }

  /** Returns the last of a source, which is taken out. */
  take(source: string): Item | undefined {
    const last = [...(this.#bySource.of(source) ?? [])].at(-1);
    if (last) this.#delete(last);
    return last;
  }

  keep(item: Item): void {
    this.#byOwner.add(keyOf(item), item);
    if (item.source !== '') this.#bySource.add(item.source, item);
    const own = this.#bySource.of(item.source);
    if (own && own.size > this.#ofSource) this.#forget(own);
    if (this.#byOwner.size <= this.#most) return;
    const since = Date.now() - ADMIN.historyMs;
    for (const first of this.#byOwner.all) {
      if (first.at >= since) break;
      this.#delete(first);
    }
    if (this.#byOwner.size > this.#most) this.#forget(this.#byOwner.most);
  }

  #forget(items: ReadonlySet<Item> | undefined): void {
    const [first] = items ?? [];
    if (!first) return;
    this.#delete(first);
    const { count, at } = this.#forgotten.get(keyOf(first)) ?? { count: 0, at: 0 };
    this.#forgotten.set(keyOf(first), { count: count + 1, at: Math.max(at, first.at) });
  }

  #delete(item: Item): void {
    this.#byOwner.delete(keyOf(item), item);
    this.#bySource.delete(item.source, item);
  }
}

function keyOf({ kind, owner }: Item): string {
  return `${kind} ${owner}`;
}

/** The cuts of the last hour: the last first. */
interface CutsOfHour {
  readonly cuts: readonly adminApi.Cut[];
  /** How many of the hour are not kept. */
  readonly forgotten: number;
}

/**
 * The last hour of a process, as `isthmus events`, `cuts`, `status` and the console show it: what happened, whose log may have been rotated, or be
 * out of reach, and the dials of its first role, with how many sessions and tunnels there were.
 */
export class Recent {
  readonly #plane: PlaneEvents;
  /** What this process saw: agents, hubs and the registry that came and went, cuts, and who has not come back. */
  readonly #seen = new Ring(ADMIN.seen, ADMIN.eventsOfOne);
  /** What strangers cause and callers claim takes none of its places: refusals, and the cuts that `isthmus hold` tells. */
  readonly #told = new Ring(ADMIN.told, 1);
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
    events.on('dial:end', (role, { tenant, trial }, { ms, error }) => {
      if (role === first && !trial) this.#dialled(tenant, ms, error !== undefined);
    });
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

  /** The dials of the last hour. @param tenant unset: all */
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

  #cut(ring: Ring, value: adminApi.Cut): void {
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
