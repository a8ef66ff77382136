import type { adminApi } from '@isthmus/proto/admin';
import { Grouped, LruMap } from '@isthmus/runtime';
import { type CutBy, formatDestination, type HoldCut, type PlaneEvents, type TunnelInfo } from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';

/** The cuts of the last hour: the last first. */
interface CutsOfHour {
  readonly cuts: readonly adminApi.Cut[];
  /** How many of the hour are not kept. */
  readonly forgotten: number;
}

/**
 * The tunnels of a gateway's callers that were cut in the last hour. Those that `isthmus hold` tells are claims of a caller, and take no
 * place of those that the gateway saw.
 */
export class RecentCuts {
  readonly #seen = new KeptCuts(ADMIN.cuts);
  readonly #told = new KeptCuts(ADMIN.toldCuts);

  constructor(events: PlaneEvents) {
    events.on('tunnel:close', (tunnel, { how, by, error }, ms) => {
      if (tunnel.role !== 'gateway' || how !== 'cut') return;
      this.#seen.keep(cutOf(tunnel, { by, reason: error.message, ms, atMs: Date.now() }));
    });
    events.on('hold:cut', ({ dial, agentId, gateway, hold, by, reason, ms, agoMs, up, down }) => {
      if (agoMs >= ADMIN.historyMs) return;
      const cut = cutOf({ dial, agentId, hubId: '', up, down }, { by, reason, ms, atMs: Date.now() - agoMs });
      this.#told.keep({ ...cut, gateway, hold });
    });
  }

  /** @param tenant unset: all */
  of(tenant?: string, now = Date.now()): CutsOfHour {
    const [seen, told] = [this.#seen.of(tenant, now), this.#told.of(tenant, now)];
    return {
      cuts: [...seen.cuts, ...told.cuts].sort((a, b) => b.atMs - a.atMs),
      forgotten: seen.forgotten + told.forgotten,
    };
  }
}

/**
 * Cuts of an hour. Where there are too many, the tenant with the most loses the one that came first, so that no tenant hides the cuts of
 * another. They are kept in the order in which they came: one that hold told late was cut before others, and costs no more than they do.
 */
class KeptCuts {
  readonly #most: number;
  readonly #kept = new Grouped<adminApi.Cut>();
  /** How many of each tenant are not kept, and when the last of them was cut, in milliseconds since the epoch. */
  readonly #forgotten: Map<string, { readonly count: number; readonly at: number }>;

  constructor(most: number) {
    this.#most = most;
    this.#forgotten = new LruMap(most);
  }

  of(tenant: string | undefined, now: number): CutsOfHour {
    const since = now - ADMIN.historyMs;
    for (const [name, { at }] of this.#forgotten) if (at < since) this.#forgotten.delete(name);
    const kept = tenant === undefined ? this.#kept.all : (this.#kept.of(tenant) ?? []);
    const forgotten = [...this.#forgotten].filter(([name]) => tenant === undefined || name === tenant);
    return {
      cuts: [...kept].filter(({ atMs }) => atMs >= since),
      forgotten: forgotten.reduce((sum, [, { count }]) => sum + count, 0),
    };
  }

  keep(cut: adminApi.Cut): void {
    this.#kept.add(cut.tenant, cut);
    if (this.#kept.size <= this.#most) return;
    const since = Date.now() - ADMIN.historyMs;
    for (const first of this.#kept.all) {
      if (first.atMs >= since) break;
      this.#kept.delete(first.tenant, first);
    }
    if (this.#kept.size <= this.#most) return;
    const [first] = this.#kept.most ?? [];
    if (!first) return;
    const { tenant, atMs } = first;
    this.#kept.delete(tenant, first);
    const { count, at } = this.#forgotten.get(tenant) ?? { count: 0, at: 0 };
    this.#forgotten.set(tenant, { count: count + 1, at: Math.max(at, atMs) });
  }
}

/** What is cut: a tunnel's names and counts, without its buffers. */
type Cuttable = Pick<TunnelInfo, 'agentId' | 'hubId' | 'up' | 'down'> & Pick<HoldCut, 'dial'>;

/** A cut as this gateway saw it. */
function cutOf({ dial, agentId, hubId, up, down }: Cuttable, { by, reason, ms, atMs }: How): adminApi.Cut {
  return {
    atMs,
    by,
    reason: reason.slice(0, ADMIN.keptReason),
    dialId: dial.id,
    tenant: dial.tenant,
    destination: formatDestination(dial.destination),
    caller: dial.caller?.identity ?? '',
    agentId,
    hubId,
    ageMs: Math.round(ms),
    bytesUp: up,
    bytesDown: down,
    traceId: dial.traceparent?.split('-')[1] ?? '',
    hold: '',
    gateway: '',
  };
}

interface How {
  readonly by: CutBy;
  readonly reason: string;
  /** How long the tunnel had been open, in milliseconds. */
  readonly ms: number;
  /** In milliseconds since the epoch. */
  readonly atMs: number;
}
