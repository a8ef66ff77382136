import { countIn, descriptors, memory, systemClock } from '@isthmus/runtime';
import { TUNNEL } from '../defaults.ts';
import type { Attach, Established } from '../dial.ts';
import { DialError } from '../errors.ts';
import type { Stage } from '../pipeline.ts';
import { ByteMeter } from './byte-meter.ts';
import { type DialUse, PerSecond, TokenBucket, UNLIMITED } from './limits.ts';
import type { DialLimits, RefusingLimit } from './table.ts';

/**
 * Limits the dials of one program, all of them: a gateway's before it chooses a session, and an agent's before it dials the destination.
 * A hub has none, because both ends of its dials have one. Tenants' limits belong here.
 */
export class DialLimiter {
  readonly limit: Stage;
  readonly #limits: ((tenant: string) => DialLimits) | undefined;
  readonly #idle: (() => void)[] = [];
  readonly #tenants = new Map<string, TenantLimiter>();
  #pruneAt = TUNNEL.idleTenants;
  #pending = 0;
  #closed = false;

  /** @param limits a tenant's, as they are now. Default: `TUNNEL.pendingDials`, and nothing else is counted */
  constructor(limits?: (tenant: string) => DialLimits) {
    this.#limits = limits;
    this.limit = {
      name: 'limit',
      enter: ({ tenant }) => {
        // `retryAfter` is 0 because another process accepts the dial at once.
        if (this.#closed)
          return new DialError('destination_unavailable', 'proxy is shutting down', { retryable: true, retryAfter: 0 });
        const limiter = this.#limiterOf(tenant);
        const refusal = limiter.admit('dial');
        if (refusal) return refusal;
        limiter.pendingDials++;
        this.#pending++;
        return undefined;
      },
      ...(limits && { answered: ({ tenant }, established) => this.#limiterOf(tenant).carry(established) }),
      left: ({ tenant }) => {
        this.#limiterOf(tenant).pendingDials--;
        if (--this.#pending === 0) for (const resolve of this.#idle.splice(0)) resolve();
      },
    };
  }

  /** Dials without an answer yet. */
  get pending(): number {
    return this.#pending;
  }

  /** What a tenant with limits uses now; undefined for one that has not dialled. */
  use(tenant: string): DialUse | undefined {
    return this.#tenants.get(tenant)?.use;
  }

  /**
   * Counts a caller that may dial soon among its tenant's pending dials. Returns what to call, once, when it dials or goes.
   * @throws DialError if the tenant has no room for another dial
   */
  awaitDial(tenant: string): () => void {
    const limiter = this.#limiterOf(tenant);
    const refusal = limiter.admit('caller');
    if (refusal) throw refusal;
    limiter.pendingDials++;
    return () => limiter.pendingDials--;
  }

  /**
   * Counts attaches that come from elsewhere among their tenants' pending dials, and counts and meters their tunnels. Only `pendingDials`
   * refuses one, and the limit of tunnels does not: a dial has counted its tunnel before, and the half that was lost may still count here.
   */
  limitAttaches(attach: Attach): Attach {
    return async (request) => {
      const limiter = this.#limiterOf(request.tenant);
      const refusal = limiter.admit('attach');
      if (refusal) throw refusal;
      limiter.pendingDials++;
      try {
        const attached = await attach(request);
        if (this.#limits) limiter.carry(attached);
        return attached;
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

  #limiterOf(tenant: string): TenantLimiter {
    const known = this.#tenants.get(tenant);
    if (known) return known;
    if (this.#tenants.size >= this.#pruneAt) this.#prune();
    const limits = this.#limits;
    const limiter = new TenantLimiter(tenant, limits && (() => limits(tenant)));
    this.#tenants.set(tenant, limiter);
    return limiter;
  }

  /** Forgets idle tenants. Otherwise, removed tenants would pile up here. */
  #prune(): void {
    for (const [tenant, limiter] of this.#tenants) if (limiter.idle) this.#tenants.delete(tenant);
    this.#pruneAt = Math.max(TUNNEL.idleTenants, 2 * this.#tenants.size);
  }
}

/** Counts what one tenant uses of this process, and refuses its dials when a limit is reached. */
class TenantLimiter {
  /** Dials and attaches without an answer, and callers that have yet to dial. */
  pendingDials = 0;
  /** Those whose destination's stream is open. */
  tunnels = 0;
  /** Dials that were counted against the rate. */
  dials = 0;
  readonly #refused = new Map<RefusingLimit, number>();
  readonly meter: ByteMeter;
  readonly #tenant: string;
  readonly #limits: () => DialLimits;
  /** Whether its dials and bytes are counted. */
  readonly #limited: boolean;
  readonly #rate = new TokenBucket(systemClock.now);
  readonly #perSecond = new PerSecond(systemClock.now);

  /** @param ofTenant its limits. Unset: only `TUNNEL.pendingDials` */
  constructor(tenant: string, ofTenant: (() => DialLimits) | undefined) {
    const limits = ofTenant ?? (() => UNLIMITED);
    this.#tenant = tenant;
    this.#limits = limits;
    this.#limited = ofTenant !== undefined;
    this.meter = new ByteMeter(tenant, limits);
  }

  get use(): DialUse {
    const { pendingDials, tunnels, dials, meter } = this;
    const perSecond = { dialsPerSecond: this.#perSecond.last, bytesPerSecond: meter.perSecond.last };
    const bytes = { bytes: meter.bytes, bytesQueued: meter.queued };
    return { pendingDials, tunnels, dials, refused: this.#refused, ...bytes, ...perSecond };
  }

  /** Whether forgetting it changes nothing. */
  get idle(): boolean {
    return this.pendingDials + this.tunnels === 0 && this.#rate.left(rateOf(this.#limits())) >= this.#limits().burst;
  }

  /**
   * Uses the rate for a dial, and nothing for a caller that has yet to dial or an attach, whose tunnel was counted before.
   * @returns why it is refused, if it is
   */
  admit(what: 'dial' | 'caller' | 'attach'): DialError | undefined {
    if (!this.#limited) {
      if (this.pendingDials < TUNNEL.pendingDials) return undefined;
      const text = `tenant ${this.#tenant} has ${TUNNEL.pendingDials} dials without an answer already`;
      return new DialError('connection_limit_reached', text);
    }
    const limits = this.#limits();
    const limit = this.#reached(what, limits);
    if (limit) {
      countIn(this.#refused, limit, 1);
      const missing = 1 - this.#rate.left(rateOf(limits));
      const retryAfter = limit === 'dialsPerSecond' ? Math.max(1, Math.ceil(missing / limits.dialsPerSecond)) : 1;
      const text =
        `tenant ${this.#tenant} has reached its limit ${limit} of ${limits[limit]}: ` +
        `dial again after ${retryAfter} s, or raise it in the tenant's file`;
      return new DialError('connection_limit_reached', text, { limit, retryAfter });
    }
    if (what === 'dial') {
      this.dials++;
      this.#perSecond.add(1);
    }
    return undefined;
  }

  #reached(what: 'dial' | 'caller' | 'attach', limits: DialLimits): RefusingLimit | undefined {
    if (this.pendingDials >= limits.pendingDials) return 'pendingDials';
    if (what === 'attach') return undefined;
    if (this.pendingDials + this.tunnels >= limits.tunnels) return 'tunnels';
    if (what === 'caller') return undefined;
    if (this.meter.queued >= limits.bytesQueued) return 'bytesQueued';
    // Last, because it counts the dial.
    return this.#rate.take(1, rateOf(limits)) ? undefined : 'dialsPerSecond';
  }

  /** A dial has become a tunnel, or an attach goes on with one, which counts until its destination's stream has closed. */
  carry(established: Pick<Established, 'end' | 'meter'>): void {
    established.meter = this.meter;
    this.tunnels++;
    established.end.whenLeft(() => this.tunnels--);
  }
}

function rateOf({ dialsPerSecond, burst }: DialLimits) {
  return { perSecond: dialsPerSecond, atOnce: burst };
}

/** What a process may have too little of. */
interface Left {
  readonly scarce: boolean;
}

/**
 * Refuses dials while file descriptors or memory are scarce. Each dial would use one of the last, for itself or for its caller's answer. The
 * kernel kills a process without memory, and every tunnel with it. @param blamed this process: the text begins with it
 */
export function refuseWhenScarce(blamed: string, files: Left = descriptors, bytes: Left = memory): Stage {
  return {
    name: 'refuseWhenScarce',
    enter() {
      if (files.scarce) return tooLittleOf(`${blamed}: too many open files`);
      return bytes.scarce ? tooLittleOf(`${blamed}: too little memory`) : undefined;
    },
  };
}

/** Retryable: the destination was not reached, and another process of its kind may have enough. */
function tooLittleOf(what: string): DialError {
  const text = `${what}: the process needs a higher limit, or fewer tunnels`;
  return new DialError('connection_limit_reached', text, { retryable: true, retryAfter: 0 });
}
