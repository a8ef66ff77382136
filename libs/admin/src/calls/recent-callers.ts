import { getOrPut, LruMap } from '@isthmus/runtime';
import type { DialRequest, PlaneEvents, Role } from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';

/** Callers that dialled recently, by tenant. Only those that have proven who they are. */
export class RecentCallers {
  readonly #lastDials = new Map<string, LruMap<string, number>>();
  #pruneAt = ADMIN.callersTenants;

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
    for (const [name, at] of known) if (now - at >= ADMIN.callerMs) known.delete(name);
    if (known.size === 0) this.#lastDials.delete(tenant);
    return [...known.keys()].sort();
  }

  #dialled(role: Role, { caller }: DialRequest): void {
    const { principal } = caller ?? {};
    if (role !== 'gateway' || principal?.role !== 'caller') return;
    const { tenant, name } = principal;
    if (this.#lastDials.size >= this.#pruneAt && !this.#lastDials.has(tenant)) this.#prune();
    getOrPut(this.#lastDials, tenant, () => new LruMap(ADMIN.callersOfTenant)).set(name, performance.now());
  }

  #prune(): void {
    for (const tenant of [...this.#lastDials.keys()]) this.of(tenant);
    this.#pruneAt = Math.max(ADMIN.callersTenants, 2 * this.#lastDials.size);
  }
}
