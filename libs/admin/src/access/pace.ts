import { getOrPut, LruMap } from '@isthmus/runtime';
import { ADMIN } from '../defaults.ts';

/** How fast one tenant's operators may ask. Calls are small, and answers as fast as ever. */
class Pace {
  /** When the next byte may be read, in milliseconds of `performance.now()`. Before now: a burst is left. */
  #due = 0;

  /** Reserves the next turn. Returns after how many milliseconds it begins. */
  turn(bytes: number, now = performance.now()): number {
    this.#due = Math.max(this.#due, now - ADMIN.tenantBurstMs) + (1000 * bytes) / ADMIN.tenantBytesPerSecond;
    return Math.max(0, this.#due - now);
  }
}

/** The paces of tenants, whose connections share one each. */
export class Paces {
  readonly #tenants = new LruMap<string, Pace>(ADMIN.pacedTenants);

  /** Reserves a tenant's next turn, for so many bytes. Returns after how many milliseconds it begins. */
  turn(tenant: string, bytes: number): number {
    return getOrPut(this.#tenants, tenant, () => new Pace()).turn(bytes);
  }
}
