import { getOrPut } from '@isthmus/runtime';
import type { CutBy, HeldCut, PlaneEvents, TunnelInfo } from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';

/** A tunnel that neither its caller nor its destination ended. */
export interface SeenCut {
  readonly tunnel: Pick<TunnelInfo, 'agentId' | 'hubId' | 'up' | 'down'> & Pick<HeldCut, 'dial'>;
  readonly by: CutBy;
  readonly reason: string;
  /** How long it had been open, in milliseconds. */
  readonly ms: number;
  /** In milliseconds since the epoch. */
  readonly at: number;
  /** Set if the gateway did not see it: who says so. */
  readonly told?: Pick<HeldCut, 'gateway' | 'hold'>;
}

/** The cuts of the last hour: the last first. */
interface CutsOfHour {
  readonly cuts: readonly SeenCut[];
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
      const reason = error.message.slice(0, ADMIN.cutReason);
      this.#seen.keep({ tunnel: named(tunnel), by, reason, ms, at: Date.now() });
    });
    events.on('hold:cut', ({ dial, agentId, gateway, hold, by, reason, ms, agoMs, up, down }) => {
      if (agoMs >= ADMIN.cutMs) return;
      const tunnel = { dial, agentId, hubId: '', up, down };
      const told = { gateway, hold };
      this.#told.keep({ tunnel, by, reason: reason.slice(0, ADMIN.cutReason), ms, at: Date.now() - agoMs, told });
    });
  }

  /** @param tenant unset: all */
  of(tenant?: string, now = Date.now()): CutsOfHour {
    const [seen, told] = [this.#seen.of(tenant, now), this.#told.of(tenant, now)];
    return {
      cuts: [...seen.cuts, ...told.cuts].sort((a, b) => b.at - a.at),
      forgotten: seen.forgotten + told.forgotten,
    };
  }
}

/** Those of one tenant, the last one last. */
interface Kept {
  readonly cuts: SeenCut[];
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

  keep(cut: SeenCut): void {
    const { cuts } = getOrPut(this.#tenants, cut.tunnel.dial.tenant, () => ({
      cuts: [],
      forgotten: { count: 0, at: 0 },
    }));
    // One that hold told late was cut before others.
    const place = cuts.findLastIndex(({ at }) => at <= cut.at);
    cuts.splice(place + 1, 0, cut);
    if (++this.#size > this.#most) this.#forgetOne(Date.now());
  }

  #forgetOne(now: number): void {
    this.#forgetBefore(now - ADMIN.cutMs);
    if (this.#size <= this.#most) return;
    let most: Kept | undefined;
    for (const kept of this.#tenants.values()) if (kept.cuts.length > (most?.cuts.length ?? 0)) most = kept;
    const oldest = most?.cuts.shift();
    if (!most || !oldest) return;
    this.#size--;
    most.forgotten = { count: most.forgotten.count + 1, at: oldest.at };
  }

  #forgetBefore(since: number): void {
    for (const [tenant, kept] of this.#tenants) {
      const { cuts } = kept;
      const old = cuts.findIndex(({ at }) => at >= since);
      this.#size -= cuts.splice(0, old < 0 ? cuts.length : old).length;
      if (kept.forgotten.at < since) kept.forgotten = { count: 0, at: 0 };
      if (cuts.length === 0 && kept.forgotten.count === 0) this.#tenants.delete(tenant);
    }
  }
}

/** A tunnel's names and counts as they are now, without its buffers. */
function named({ dial, agentId, hubId, up, down }: TunnelInfo): SeenCut['tunnel'] {
  const { id, tenant, destination, caller, traceparent } = dial;
  return { agentId, hubId, up, down, dial: { id, tenant, destination, caller, traceparent } };
}
