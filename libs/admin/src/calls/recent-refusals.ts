import type { adminApi } from '@isthmus/proto/admin';
import { Grouped, getOrPut, LruMap } from '@isthmus/runtime';
import { type DialRequest, Distrusted, inWords, type PlaneEvents, type Role, unlessProbed } from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';

/** Recent refusals, for operators: the log may have been rotated, or be out of reach. */
export class RecentRefusals {
  readonly #events: PlaneEvents;
  /** The last one last. */
  readonly #kept = new Map<string, adminApi.Refusal>();
  /** The keys of those, by port. */
  readonly #ports = new Grouped<string>();

  constructor(events: PlaneEvents) {
    this.#events = events;
    const { probe, refused } = unlessProbed((where, remote, error) => this.#take(where, remote, error));
    events.on('probe', probe).on('refused', refused);
  }

  /** An operator's probe comes from there, so its refusal is not kept. */
  expect(remote: string): void {
    this.#events.emit('probe', remote);
  }

  /** The last first. @param withinMs how long ago they may be, in milliseconds */
  list(withinMs = ADMIN.refusalMs, now = Date.now()): adminApi.Refusal[] {
    return [...this.#kept.values()].filter(({ lastMs }) => now - lastMs < withinMs).reverse();
  }

  #take(where: string, remote: string, error: Error): void {
    const now = Date.now();
    const reason = inWords(error).slice(0, ADMIN.keptReason);
    const key = JSON.stringify(kindOf(where, remote, reason));
    const before = this.#kept.get(key);
    const known = before && now - before.lastMs < ADMIN.refusalMs ? before : undefined;
    const [count, firstMs] = known ? [known.count + 1, known.firstMs] : [1, now];
    this.#kept.delete(key);
    this.#ports.delete(where, key);
    const distrusted = error instanceof Distrusted;
    this.#kept.set(key, { where, remote, reason, count, firstMs, lastMs: now, distrusted });
    this.#ports.add(where, key);
    if (this.#kept.size > ADMIN.refusals) this.#forget();
  }

  /** Forgets the oldest one of the port that has most: peers choose parts of the reasons, and at one port they push out no other's. */
  #forget(): void {
    const [key = ''] = this.#ports.most ?? [];
    this.#ports.delete(this.#kept.get(key)?.where ?? '', key);
    this.#kept.delete(key);
  }
}

/** What refusals have in common that count as one. */
function kindOf(where: string, remote: string, reason: string): string[] {
  // Each attempt comes from another port.
  return [where, remote.replace(/:\d+$/, ''), reason];
}

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
