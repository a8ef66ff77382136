import type { Grant } from '@isthmus/admission';
import { LruMap } from '@isthmus/runtime';
import { AgentLimitError } from '@isthmus/transport';
import { NotAuthorised, PerSecond, TokenBucket } from '@isthmus/tunnel';

/** Tenants whose use is kept: as many as there can be files. */
const MOST_TENANTS = 10_000;

/** How often agents of each tenant may renew their sessions at a hub. All tenants share the processor that verifies their tokens. */
export class RenewalRates {
  readonly #now: () => number;
  readonly #tenants = new LruMap<string, { readonly bucket: TokenBucket; readonly perSecond: PerSecond }>(MOST_TENANTS);

  /** @param now milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Fresh tokens of a tenant that were taken in the last full second. */
  last(tenant: string): number {
    return this.#tenants.get(tenant)?.perSecond.last ?? 0;
  }

  /** Counts a fresh token. @throws NotAuthorised, with an AgentLimitError as its cause, if the tenant's limit leaves no room for it */
  take({ tenant, principal }: Pick<Grant, 'tenant' | 'principal'>): void {
    const { name, path, limits } = tenant;
    const { renewalsPerSecond: most } = limits;
    const known = this.#tenants.get(name);
    const { bucket, perSecond } = known ?? { bucket: new TokenBucket(this.#now), perSecond: new PerSecond(this.#now) };
    if (!known) this.#tenants.set(name, { bucket, perSecond });
    if (bucket.take(1, { perSecond: most, atOnce: most })) {
      perSecond.add(1);
      return;
    }
    const rule = `${path}: limits.renewalsPerSecond`;
    const text = `tenant ${name} has reached its limit renewalsPerSecond of ${most}: send the token again later (${rule})`;
    const cause = new AgentLimitError('limits.renewalsPerSecond', text);
    throw new NotAuthorised(text, { rule, principal, cause });
  }
}
