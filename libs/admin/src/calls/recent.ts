import type { adminApi } from '@isthmus/proto/admin';
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
import { FairRing } from './fair-ring.ts';
import { RecentDials } from './recent-dials.ts';
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

/**
 * The last hour of a process, as `isthmus events`, `cuts`, `status`, `watch` and the console show it: what happened, whose log may have been
 * rotated, or be out of reach; and its dials. Text is formatted only on request.
 */
export class Recent extends RecentDials {
  readonly #plane: PlaneEvents;
  /** What this process saw: agents, hubs and the registry that came and went, cuts, and who has not come back. */
  readonly #seen = new FairRing<Kinds>(ADMIN.seen, ADMIN.eventsOfOne);
  /** What strangers cause and callers claim takes none of its places: refusals, and the cuts that `isthmus hold` tells. */
  readonly #told = new FairRing<Kinds>(ADMIN.told);

  /** @param own whose start is the first event. Without it, dials are a gateway's */
  constructor(events: PlaneEvents, own?: Pick<SeenEvent, 'id'> & { readonly role: Role }) {
    super(events, own?.role ?? 'gateway');
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

  /** The cuts of the last hour, the last first, and how many are not kept. @param tenant unset: all */
  cuts(tenant?: string, now = Date.now()): { readonly cuts: readonly adminApi.Cut[]; readonly forgotten: number } {
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

  /** An operator's probe comes from there, so its refusal is not kept. */
  expect(remote: string): void {
    this.#plane.emit('probe', remote);
  }

  protected override onCut(tunnel: TunnelInfo, how: Omit<How, 'atMs'>): void {
    this.#cut(this.#seen, cutOf(tunnel, { ...how, atMs: Date.now() }));
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
