import { getOrPut } from '@isthmus/tunnel';

/** Above this size, expired entries are removed. */
const PRUNE_AT = 1000;

/** How long a silent hub or session is avoided before a dial tries it again, in milliseconds. */
const AVOIDED_FOR = 1000;

/**
 * Hubs and sessions that did not acknowledge a dial in time. Dials avoid them while there is an alternative, until they answer or
 * AVOIDED_FOR has passed: long before PING finds them dead. One tenant's silent agents make only its own dials avoid their hub. If sessions
 * of two tenants are silent there, the hub itself may hang, and all dials avoid it.
 */
export class Suspects {
  /** By hub or session: until when each tenant avoids it. */
  readonly #until = new Map<string, Map<string, number>>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  get size(): number {
    return this.#until.size;
  }

  /** @param tenant whose dial was not acknowledged */
  accuse(tenant: string, ...ids: string[]): void {
    const until = this.#now() + AVOIDED_FOR;
    for (const id of ids) {
      const byTenant = getOrPut(this.#until, id, () => new Map<string, number>());
      // Behind those that expire before it.
      byTenant.delete(tenant);
      byTenant.set(tenant, until);
      this.#prune(id);
    }
    // `has` is never called for an id that does not come back, so remove expired ids here.
    if (this.#until.size > PRUNE_AT) for (const id of [...this.#until.keys()]) this.#prune(id);
  }

  clear(...ids: string[]): void {
    if (this.#until.size > 0) for (const id of ids) this.#until.delete(id);
  }

  /** Whether a tenant's dials should avoid a hub or session. */
  has(id: string, tenant: string): boolean {
    const byTenant = this.#prune(id);
    return byTenant !== undefined && (byTenant.size > 1 || byTenant.has(tenant));
  }

  /** Forgets what has expired. @returns what is left */
  #prune(id: string): ReadonlyMap<string, number> | undefined {
    const byTenant = this.#until.get(id);
    if (!byTenant) return undefined;
    const now = this.#now();
    for (const [tenant, until] of byTenant) {
      if (until > now) break;
      byTenant.delete(tenant);
    }
    if (byTenant.size > 0) return byTenant;
    this.#until.delete(id);
    return undefined;
  }
}
