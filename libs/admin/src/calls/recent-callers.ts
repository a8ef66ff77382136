import { LruMap } from '@isthmus/runtime';
import { type DialRequest, getOrPut, type PlaneEvents, type Role } from '@isthmus/tunnel';

/** After so long without a dial a caller is forgotten, in milliseconds. API servers that are in use dial every minute. */
const FRESH_MS = 300_000;

/** Callers that are remembered of one tenant: its API servers, and a few others. */
const MOST_OF_TENANT = 100;

/** Tenants that are remembered before those are forgotten whose callers all are. Otherwise, removed tenants would pile up here. */
const PRUNE_AT = 1000;

/** Callers that dialled recently, by tenant. Only those that have proven who they are. */
export class RecentCallers {
  readonly #lastDials = new Map<string, LruMap<string, number>>();
  #pruneAt = PRUNE_AT;

  constructor(events: PlaneEvents) {
    events.on('dial:start', (role, dial) => this.#dialled(role, dial));
  }

  /** Tenants that are remembered. */
  get tenants(): number {
    return this.#lastDials.size;
  }

  /** The names of a tenant's callers, in order. */
  of(tenant: string, now = performance.now()): string[] {
    const known = this.#lastDials.get(tenant);
    if (!known) return [];
    for (const [name, at] of known) if (now - at >= FRESH_MS) known.delete(name);
    if (known.size === 0) this.#lastDials.delete(tenant);
    return [...known.keys()].sort();
  }

  #dialled(role: Role, { caller }: DialRequest): void {
    const { principal } = caller ?? {};
    if (role !== 'gateway' || principal?.role !== 'caller') return;
    const { tenant, name } = principal;
    if (this.#lastDials.size >= this.#pruneAt && !this.#lastDials.has(tenant)) this.#prune();
    getOrPut(this.#lastDials, tenant, () => new LruMap(MOST_OF_TENANT)).set(name, performance.now());
  }

  #prune(): void {
    for (const tenant of [...this.#lastDials.keys()]) this.of(tenant);
    this.#pruneAt = Math.max(PRUNE_AT, 2 * this.#lastDials.size);
  }
}
