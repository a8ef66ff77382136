import { getOrPut } from '@isthmus/runtime';
import { type DialLimits, type DialUse, UNLIMITED } from '../limits/limits.ts';
import { TenantLimiter } from '../limits/tenant-limiter.ts';
import type { Dial, DialRequest, Established } from './dial.ts';
import { DialError } from './errors.ts';
import type { Stage } from './pipeline.ts';

/**
 * How many dials of one tenant may be pending in one process. Each dial has a deadline, so a tenant with more has lost its
 * destinations or agents. Refusing its callers is better than making them wait (upstream was seen with 27,700 pending dials).
 */
const MAX_PENDING_DIALS = 2000;

/** Tenants that may be remembered before idle ones are forgotten. */
const PRUNE_AT = 1000;

export interface DialLimiterOptions {
  /** A tenant's limits, as they are now. Default: 2,000 pending dials, and nothing else is counted. */
  readonly limits?: (tenant: string) => DialLimits;
  /** Milliseconds. */
  readonly now?: () => number;
}

/**
 * Limits the dials of one program, all of them: a gateway's before it chooses a session, and an agent's before it dials the destination.
 * A hub has none, because both ends of its dials have one. Tenants' limits belong here.
 */
export class DialLimiter {
  readonly limit: Stage = (next) => (request) => this.#admit(request, next);
  readonly #limits: DialLimiterOptions['limits'];
  readonly #now: () => number;
  readonly #idle: (() => void)[] = [];
  readonly #tenants = new Map<string, TenantLimiter>();
  #pruneAt = PRUNE_AT;
  #pending = 0;
  #closed = false;

  constructor({ limits, now = () => performance.now() }: DialLimiterOptions = {}) {
    this.#limits = limits;
    this.#now = now;
  }

  /** Dials without an answer yet. */
  get pending(): number {
    return this.#pending;
  }

  /** What a tenant with limits uses now; undefined for one that has not dialled. */
  use(tenant: string): DialUse | undefined {
    return this.#tenants.get(tenant);
  }

  /**
   * Counts a caller that may dial soon among its tenant's pending dials. Returns what to call, once, when it dials or goes.
   * @throws DialError if the tenant has no room for another dial
   */
  awaitDial(tenant: string): () => void {
    const limiter = this.#limiterOf(tenant);
    const refused = this.#limits ? limiter.noRoom() : tooManyPending(limiter, tenant);
    if (refused) throw refused;
    limiter.pendingDials++;
    return () => limiter.pendingDials--;
  }

  /** Refuses new dials. Resolves once every pending dial has its answer. */
  close(): Promise<void> {
    this.#closed = true;
    return this.#pending === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve));
  }

  get closed(): boolean {
    return this.#closed;
  }

  async #admit(request: DialRequest, next: Dial): Promise<Established> {
    if (this.#closed) throw shuttingDown();
    const { tenant } = request;
    const limiter = this.#limiterOf(tenant);
    const refused = this.#limits ? limiter.refusal() : tooManyPending(limiter, tenant);
    if (refused) throw refused;
    this.#count(limiter, 1);
    try {
      const established = await next(request);
      return this.#limits ? limiter.carry(established) : established;
    } finally {
      this.#count(limiter, -1);
      if (this.#pending === 0) for (const resolve of this.#idle.splice(0)) resolve();
    }
  }

  #count(limiter: TenantLimiter, by: 1 | -1): void {
    limiter.pendingDials += by;
    this.#pending += by;
  }

  #limiterOf(tenant: string): TenantLimiter {
    const { size } = this.#tenants;
    if (size >= this.#pruneAt && !this.#tenants.has(tenant)) this.#prune();
    const limits = this.#limits ?? (() => UNLIMITED);
    return getOrPut(this.#tenants, tenant, () => new TenantLimiter(tenant, () => limits(tenant), this.#now));
  }

  /** Forgets idle tenants. Otherwise, removed tenants would pile up here. */
  #prune(): void {
    for (const [tenant, limiter] of this.#tenants) if (limiter.idle) this.#tenants.delete(tenant);
    this.#pruneAt = Math.max(PRUNE_AT, 2 * this.#tenants.size);
  }
}

function tooManyPending({ pendingDials }: TenantLimiter, tenant: string): DialError | undefined {
  if (pendingDials < MAX_PENDING_DIALS) return undefined;
  const text = `tenant ${tenant} has ${MAX_PENDING_DIALS} dials without an answer already`;
  return new DialError('connection_limit_reached', text);
}

/** `retryAfter` is 0 because another process accepts the dial at once. */
function shuttingDown(): DialError {
  return new DialError('destination_unavailable', 'proxy is shutting down', { retryable: true, retryAfter: 0 });
}
