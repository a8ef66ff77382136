import type { Grant } from '@isthmus/admission';
import { LruMap } from '@isthmus/runtime';
import { AgentLimitError } from '@isthmus/transport';
import { NotAuthorised, TokenBucket } from '@isthmus/tunnel';

/** Tenants whose use is kept: as many as there can be files. */
const MOST_TENANTS = 10_000;

/** How often agents of each tenant may renew their sessions at a hub. All tenants share the processor that verifies their tokens. */
export class RenewalRates {
  readonly #now: () => number;
  readonly #buckets = new LruMap<string, TokenBucket>(MOST_TENANTS);

  /** @param now milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Counts a fresh token. @throws NotAuthorised, with an AgentLimitError as its cause, if the tenant's limit leaves no room for it */
  take({ tenant, principal }: Pick<Grant, 'tenant' | 'principal'>): void {
    const { name, path, limits } = tenant;
    const { renewalsPerSecond: most } = limits;
    const bucket = this.#buckets.get(name) ?? new TokenBucket(this.#now);
    this.#buckets.set(name, bucket);
    if (bucket.take(1, { perSecond: most, atOnce: most })) return;
    const rule = `${path}: limits.renewalsPerSecond`;
    const text = `tenant ${name} has reached its limit renewalsPerSecond of ${most}: send the token again later (${rule})`;
    const cause = new AgentLimitError('limits.renewalsPerSecond', text);
    throw new NotAuthorised(text, { rule, principal, cause });
  }
}
