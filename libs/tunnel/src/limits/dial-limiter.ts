import { descriptors, extended } from '@isthmus/runtime';
import { TUNNEL } from '../defaults.ts';
import type { Attach, Dial, DialRequest, Established, Stage } from '../dial.ts';
import { DialError } from '../errors.ts';
import { ByteMeter } from './byte-meter.ts';
import { type DialUse, PerSecond, TokenBucket, UNLIMITED } from './limits.ts';
import type { DialLimits, RefusingLimit } from './table.ts';

export interface DialLimiterOptions {
  /** A tenant's limits, as they are now. Default: `TUNNEL.pendingDials`, and nothing else is counted. */
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
  #pruneAt = TUNNEL.idleTenants;
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

  /**
   * Counts attaches that come from elsewhere among their tenants' pending dials, and counts and meters their tunnels. Only `pendingDials`
   * refuses one, and the limit of tunnels does not: a dial has counted its tunnel before, and the half that was lost may still count here.
   */
  limitAttaches(attach: Attach): Attach {
    return async (request) => {
      const { tenant } = request;
      const limiter = this.#limiterOf(tenant);
      const refused = this.#limits ? limiter.manyPending() : tooManyPending(limiter, tenant);
      if (refused) throw refused;
      limiter.pendingDials++;
      try {
        const attached = await attach(request);
        return this.#limits ? limiter.carry(attached) : attached;
      } finally {
        limiter.pendingDials--;
      }
    };
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
    const known = this.#tenants.get(tenant);
    if (known) return known;
    if (this.#tenants.size >= this.#pruneAt) this.#prune();
    const limits = this.#limits ?? (() => UNLIMITED);
    const limiter = new TenantLimiter(tenant, () => limits(tenant), this.#now);
    this.#tenants.set(tenant, limiter);
    return limiter;
  }

  /** Forgets idle tenants. Otherwise, removed tenants would pile up here. */
  #prune(): void {
    for (const [tenant, limiter] of this.#tenants) if (limiter.idle) this.#tenants.delete(tenant);
    this.#pruneAt = Math.max(TUNNEL.idleTenants, 2 * this.#tenants.size);
  }
}

function tooManyPending({ pendingDials }: TenantLimiter, tenant: string): DialError | undefined {
  if (pendingDials < TUNNEL.pendingDials) return undefined;
  const text = `tenant ${tenant} has ${TUNNEL.pendingDials} dials without an answer already`;
  return new DialError('connection_limit_reached', text);
}

/** `retryAfter` is 0 because another process accepts the dial at once. */
function shuttingDown(): DialError {
  return new DialError('destination_unavailable', 'proxy is shutting down', { retryable: true, retryAfter: 0 });
}

/** Counts what one tenant uses of this process, and refuses its dials when a limit is reached. */
class TenantLimiter implements DialUse {
  /** Dials and attaches without an answer, and callers that have yet to dial. */
  pendingDials = 0;
  /** Those whose destination's stream is open. */
  tunnels = 0;
  /** Dials that were counted against the rate. */
  dials = 0;
  readonly refused = new Map<RefusingLimit, number>();
  readonly meter: ByteMeter;
  readonly #tenant: string;
  readonly #limits: () => DialLimits;
  readonly #rate: TokenBucket;
  readonly #perSecond: PerSecond;

  /** @param now milliseconds */
  constructor(tenant: string, limits: () => DialLimits, now: () => number) {
    this.#tenant = tenant;
    this.#limits = limits;
    this.#rate = new TokenBucket(now);
    this.#perSecond = new PerSecond(now);
    this.meter = new ByteMeter(tenant, limits, now);
  }

  get bytesQueued(): number {
    return this.meter.queued;
  }

  get bytes(): number {
    return this.meter.bytes;
  }

  get dialsPerSecond(): number {
    return this.#perSecond.last;
  }

  get bytesPerSecond(): number {
    return this.meter.perSecond.last;
  }

  /** Whether forgetting it changes nothing. */
  get idle(): boolean {
    return this.pendingDials + this.tunnels === 0 && this.#rate.left(rateOf(this.#limits())) >= this.#limits().burst;
  }

  /** Returns why not even a caller that has yet to dial is admitted. */
  noRoom(): DialError | undefined {
    return this.#counted(this.#full());
  }

  /** Returns why not even a tunnel that was counted before is admitted. */
  manyPending(): DialError | undefined {
    return this.#counted(this.#tooMany());
  }

  #counted(refusal: DialError | undefined): DialError | undefined {
    if (refusal?.limit) this.#countRefused(refusal.limit);
    return refusal;
  }

  /** Returns why a dial is refused; undefined for one that is admitted, and that has then used the rate. */
  refusal(): DialError | undefined {
    const refusal = this.#refusal();
    if (!refusal?.limit) {
      this.dials++;
      this.#perSecond.add(1);
    } else this.#countRefused(refusal.limit);
    return refusal;
  }

  #countRefused(limit: RefusingLimit): void {
    this.refused.set(limit, (this.refused.get(limit) ?? 0) + 1);
  }

  #refusal(): DialError | undefined {
    const full = this.#full();
    if (full) return full;
    const limits = this.#limits();
    const tenant = this.#tenant;
    if (this.meter.queued >= limits.bytesQueued) return overLimit(tenant, 'bytesQueued', limits);
    // Last, because it counts the dial.
    const rate = rateOf(limits);
    if (this.#rate.take(1, rate)) return undefined;
    const seconds = (1 - this.#rate.left(rate)) / limits.dialsPerSecond;
    return overLimit(tenant, 'dialsPerSecond', limits, Math.max(1, Math.ceil(seconds)));
  }

  #full(): DialError | undefined {
    const limits = this.#limits();
    const pending = this.#tooMany();
    if (pending) return pending;
    if (this.pendingDials + this.tunnels >= limits.tunnels) return overLimit(this.#tenant, 'tunnels', limits);
    return undefined;
  }

  #tooMany(): DialError | undefined {
    const limits = this.#limits();
    return this.pendingDials >= limits.pendingDials ? overLimit(this.#tenant, 'pendingDials', limits) : undefined;
  }

  /** A dial has become a tunnel, which counts until its destination's stream has closed. */
  carry<T extends Pick<Established, 'end'>>(established: T): T & Pick<Established, 'meter'> {
    const { stream } = established.end;
    if (!stream.closed) {
      this.tunnels++;
      stream.once('close', () => this.tunnels--);
    }
    return extended(established, { meter: this.meter });
  }
}

/** @param retryAfter in seconds */
function overLimit(tenant: string, limit: RefusingLimit, limits: DialLimits, retryAfter = 1): DialError {
  const text =
    `tenant ${tenant} has reached its limit ${limit} of ${limits[limit]}: ` +
    `dial again after ${retryAfter} s, or raise it in the tenant's file`;
  return new DialError('connection_limit_reached', text, { limit, retryAfter });
}

function rateOf({ dialsPerSecond, burst }: DialLimits) {
  return { perSecond: dialsPerSecond, atOnce: burst };
}

/** Refuses dials while file descriptors are scarce. Each dial would use one of the last, for itself or for its caller's answer. */
export function refuseWhenScarce(dial: Dial, left: { readonly scarce: boolean } = descriptors): Dial {
  return (request) => (left.scarce ? Promise.reject(tooManyOpen()) : dial(request));
}

/** Retryable: the destination was not reached, and another agent or gateway may have descriptors. */
function tooManyOpen(): DialError {
  const text = 'too many open files: the process needs a higher limit, or fewer tunnels';
  return new DialError('connection_limit_reached', text, { retryable: true, retryAfter: 0 });
}
