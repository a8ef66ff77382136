import type { adminApi } from '@isthmus/proto/admin';
import { getOrPut } from '@isthmus/runtime';
import { type CutBy, formatDestination, type HeldCut, type PlaneEvents, type TunnelInfo } from '@isthmus/tunnel';
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
      if (agoMs >= ADMIN.cutMs) return;
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

/** Those of one tenant, the last one last. */
interface Kept {
  readonly cuts: adminApi.Cut[];
  /** When those were cut that are not kept, in milliseconds since the epoch, the last one last. */
  forgotten: { count: number; at: number };
}

/** Cuts of an hour. Where there are too many, the tenant with the most loses its oldest, so that no tenant hides the cuts of another. */
class KeptCuts {
  readonly #most: number;
  readonly #tenants = new Map<string, Kept>();
  #size = 0;

  constructor(most: number) {
    this.#most = most;
  }

  of(tenant: string | undefined, now: number): CutsOfHour {
    this.#forgetBefore(now - ADMIN.cutMs);
    const kept = [...this.#tenants].filter(([name]) => tenant === undefined || name === tenant).map(([, one]) => one);
    return {
      cuts: kept.flatMap(({ cuts }) => cuts),
      forgotten: kept.reduce((sum, { forgotten }) => sum + forgotten.count, 0),
    };
  }

  keep(cut: adminApi.Cut): void {
    const { cuts } = getOrPut(this.#tenants, cut.tenant, () => ({
      cuts: [],
      forgotten: { count: 0, at: 0 },
    }));
    // One that hold told late was cut before others.
    const place = cuts.findLastIndex(({ atMs }) => atMs <= cut.atMs);
    cuts.splice(place + 1, 0, cut);
    if (++this.#size > this.#most) this.#forgetOne(Date.now());
  }

  #forgetOne(now: number): void {
    this.#forgetBefore(now - ADMIN.cutMs);
    if (this.#size <= this.#most) return;
    // Without a look at each cut: when an agent dies, each of its 10,000 tunnels forgets one here.
    let most: Kept | undefined;
    for (const kept of this.#tenants.values()) if (kept.cuts.length > (most?.cuts.length ?? 0)) most = kept;
    const oldest = most?.cuts.shift();
    if (!most || !oldest) return;
    this.#size--;
    most.forgotten = { count: most.forgotten.count + 1, at: oldest.atMs };
  }

  #forgetBefore(since: number): void {
    for (const [tenant, kept] of this.#tenants) {
      const { cuts } = kept;
      const old = cuts.findIndex(({ atMs }) => atMs >= since);
      this.#size -= cuts.splice(0, old < 0 ? cuts.length : old).length;
      if (kept.forgotten.at < since) kept.forgotten = { count: 0, at: 0 };
      if (cuts.length === 0 && kept.forgotten.count === 0) this.#tenants.delete(tenant);
    }
  }
}

/** What is cut: a tunnel's names and counts, without its buffers. */
type Cuttable = Pick<TunnelInfo, 'agentId' | 'hubId' | 'up' | 'down'> & Pick<HeldCut, 'dial'>;

/** A cut as this gateway saw it. */
function cutOf({ dial, agentId, hubId, up, down }: Cuttable, { by, reason, ms, atMs }: How): adminApi.Cut {
  return {
    atMs,
    by,
    reason: reason.slice(0, ADMIN.cutReason),
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
