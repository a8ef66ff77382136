import { LruMap } from '@isthmus/runtime';
import { type DialOutcome, type DialRequest, getOrPut, type PlaneEvents, type Role } from '@isthmus/tunnel';
import { DialHistory, type Slot } from './dial-history.ts';

const SLOT_MS = 10_000;
/** Of one tenant. */
const TENANT_SLOT_MS = 60_000;
/** Tenants with an hour of their own, the last that dialled: 13 KB each. */
const MOST_TENANTS = 100;

export interface Hour {
  readonly slotMs: number;
  readonly slots: readonly Slot[];
}

/** What the admin RPC reads of the last hour, or of one tenant's. */
export interface SeenHistory {
  /** @param tenant unset: all */
  of(tenant?: string): Hour;
}

/** The last hour of a process, as its first role saw it: dials by all and by tenant, and how many sessions and tunnels there were. */
export class RecentHistory implements SeenHistory {
  readonly #all = new DialHistory(SLOT_MS, Date.now());
  readonly #tenants = new LruMap<string, DialHistory>(MOST_TENANTS);
  readonly #role: Role;

  constructor(events: PlaneEvents, role: Role) {
    this.#role = role;
    events.on('dial:end', (at, dial, outcome) => this.#ended(at, dial, outcome));
  }

  of(tenant?: string): Hour {
    const now = Date.now();
    const history = tenant === undefined ? this.#all : this.#tenants.get(tenant);
    return { slotMs: history?.slotMs ?? TENANT_SLOT_MS, slots: history?.slots(now) ?? [] };
  }

  /** Samples what `count` returns, twice a slot, until the returned function is called. */
  follow(count: () => { readonly sessions: number; readonly tunnels: number }): () => void {
    const look = () => {
      const { sessions, tunnels } = count();
      this.#all.sample(Date.now(), sessions, tunnels);
    };
    look();
    const timer = setInterval(look, SLOT_MS / 2).unref();
    return () => clearInterval(timer);
  }

  #ended(role: Role, { tenant }: DialRequest, { ms, error }: DialOutcome): void {
    if (role !== this.#role) return;
    const now = Date.now();
    const own = getOrPut(this.#tenants, tenant, () => new DialHistory(TENANT_SLOT_MS, now));
    for (const history of [this.#all, own]) history.count(now, ms, error !== undefined);
  }
}
