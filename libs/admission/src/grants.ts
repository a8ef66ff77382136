import { deleteFrom, getOrPut } from '@isthmus/runtime';
import { NotAuthorised, type Principal } from '@isthmus/tunnel';
import { type Claim, claimFault, type Fault } from './claims.ts';
import { ADMISSION } from './defaults.ts';
import type { Tenant } from './tenants.ts';

/** What a principal was verified by. */
export interface Validity {
  /** Milliseconds since the epoch. Infinity: never. */
  readonly expires: number;
  /** Certificates' serial numbers, as a tenant's file denies them. */
  readonly serials?: readonly string[];
  /** Why it does not stand any more, with the tenant as it is in force now. Costs microseconds: all that stand are asked after each change. */
  fault(tenant: Tenant): Fault | undefined;
}

/** Who a credential proves its owner to be. */
export interface Proven {
  readonly tenant: Tenant;
  readonly name: string;
  /** What verified it: `acme.yaml: agents[1].tokens`. */
  readonly rule: string;
  /** Several agents hold the credential, such as a service account's token: it says nothing of an agent's id. */
  readonly shared?: boolean;
  readonly validity: Validity;
}

/** What a verified credential allows, for as long as it stands. */
export interface Grant {
  readonly principal: Principal;
  /** The tenant as it is in force now: its claims, policy and limits change with its file. */
  readonly tenant: Tenant;
  /**
   * Calls once when the credential no longer stands: it expired or was revoked, its CA, key or tenant was removed. Within 10 s.
   * @param claim what the agent said of itself, which its tenant's file must allow for as long
   * @returns stops watching; call it when the peer has gone
   */
  watch(ended: (reason: NotAuthorised) => void, claim?: Claim): () => void;
}

export interface GrantsOptions {
  /** The tenant in force of a name. */
  readonly tenant: (name: string) => Tenant | undefined;
  /** Milliseconds since the epoch. Default: the system's clock. */
  readonly now?: () => number;
}

/** What was granted and is in use. Each is reviewed when its tenant changes, and ends when it does not stand any more. */
export class Grants {
  readonly #tenant: GrantsOptions['tenant'];
  readonly #now: () => number;
  readonly #watched = new Map<string, Set<Watched>>();
  /** Tenants whose grants are to be reviewed. */
  readonly #due = new Set<string>();
  /** Counts what was reviewed, so that no change between a grant and its watching is missed. */
  #reviews = 0;
  #review: Iterator<Watched> | undefined;
  #tick: NodeJS.Immediate | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** When the first that is watched expires. */
  #next = Number.POSITIVE_INFINITY;

  constructor({ tenant, now = () => Date.now() }: GrantsOptions) {
    this.#tenant = tenant;
    this.#now = now;
  }

  /** @throws NotAuthorised if it does not stand now */
  grant(principal: Principal, tenant: Tenant, validity: Validity): Grant {
    const now = this.#now();
    const fault = faultOf(principal, tenant, validity) ?? expiry(principal, validity, 0, now);
    if (fault) throw refusal(principal, fault);
    const current = () => this.#tenant(principal.tenant);
    const asOf = this.#reviews;
    return {
      principal,
      get tenant() {
        return current() ?? tenant;
      },
      watch: (ended, claim) => this.#watch({ principal, validity, last: tenant, ended, claim }, asOf),
    };
  }

  /** How many are watched. */
  get size(): number {
    let size = 0;
    for (const { size: each } of this.#watched.values()) size += each;
    return size;
  }

  /** Reviews what was granted to these tenants, over as many ticks of the event loop as it takes. */
  review(tenants: Iterable<string>): void {
    this.#reviews++;
    for (const tenant of tenants) if (this.#watched.has(tenant)) this.#due.add(tenant);
    this.#schedule();
  }

  close(): void {
    clearInterval(this.#timer);
    clearImmediate(this.#tick);
    this.#timer = undefined;
    this.#watched.clear();
    this.#due.clear();
  }

  #watch(watched: Watched, asOf: number): () => void {
    const { principal, validity, last } = watched;
    const { tenant } = principal;
    getOrPut(this.#watched, tenant, () => new Set<Watched>()).add(watched);
    this.#next = Math.min(this.#next, validity.expires + graceOf(last));
    this.#timer ??= setInterval(() => this.#expire(), ADMISSION.expiryMs).unref();
    // It was granted before the tenant changed, or before a key or an authority went.
    if (this.#reviews !== asOf || this.#tenant(tenant) !== last) setImmediate(() => this.#reviewOne(watched));
    return () => this.#forget(watched);
  }

  #forget(watched: Watched): void {
    deleteFrom(this.#watched, watched.principal.tenant, watched);
    if (this.#watched.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#next = Number.POSITIVE_INFINITY;
  }

  #expire(): void {
    if (this.#now() < this.#next) return;
    this.#next = Number.POSITIVE_INFINITY;
    this.review(this.#watched.keys());
  }

  #schedule(): void {
    if (this.#due.size > 0 || this.#review) this.#tick ??= setImmediate(() => this.#reviewSome());
  }

  #reviewSome(): void {
    this.#tick = undefined;
    const until = performance.now() + ADMISSION.reviewTurnMs;
    do {
      for (let left = ADMISSION.grantsALook; left > 0; left--) {
        this.#review ??= this.#nextReview();
        const step = this.#review?.next();
        if (!step) return;
        if (step.done) this.#review = undefined;
        else this.#reviewOne(step.value);
      }
    } while (performance.now() < until);
    this.#schedule();
  }

  /** A set that is iterated may lose and gain members meanwhile. */
  #nextReview(): Iterator<Watched> | undefined {
    const [tenant] = this.#due;
    if (tenant === undefined) return undefined;
    this.#due.delete(tenant);
    return (this.#watched.get(tenant) ?? new Set<Watched>()).values();
  }

  #reviewOne(watched: Watched): void {
    const { principal, validity, ended } = watched;
    // Its watching may have ended since its review began.
    if (!this.#watched.get(principal.tenant)?.has(watched)) return;
    const tenant = this.#tenant(principal.tenant);
    const grace = tenant ? graceOf(tenant) : 0;
    const fault = tenant
      ? (faultOf(principal, tenant, validity) ??
        expiry(principal, validity, grace, this.#now()) ??
        changedClaim(watched, tenant))
      : { why: 'its tenant was removed', rule: watched.last.path };
    if (!fault) {
      watched.last = tenant as Tenant;
      this.#next = Math.min(this.#next, validity.expires + grace);
      return;
    }
    this.#forget(watched);
    ended(refusal(principal, fault));
  }
}

interface Watched {
  readonly principal: Principal;
  readonly validity: Validity;
  /** The tenant as it was when this was last reviewed. */
  last: Tenant;
  readonly ended: (reason: NotAuthorised) => void;
  readonly claim: Claim | undefined;
  /** What the tenant's agents might claim when this was last reviewed. */
  claims?: Tenant['claims'];
}

/** Costs something only when what the tenant's agents may claim has changed. */
function changedClaim(watched: Watched, tenant: Tenant): Fault | undefined {
  if (!watched.claim || watched.claims === tenant.claims) return undefined;
  watched.claims = tenant.claims;
  return claimFault(tenant, watched.principal, watched.claim);
}

function graceOf({ file }: Tenant): number {
  return (file.expiryGraceSeconds ?? 0) * 1000;
}

function faultOf(principal: Principal, tenant: Tenant, validity: Validity): Fault | undefined {
  const denied = tenant.denials(principal, validity.serials ?? []);
  return denied === undefined
    ? validity.fault(tenant)
    : { why: 'it is on the list of what is denied', rule: `${tenant.path}: ${denied}` };
}

function expiry({ rule }: Principal, { expires }: Validity, grace: number, now: number): Fault | undefined {
  if (now <= expires + grace) return undefined;
  return { why: `its credential expired at ${new Date(Math.max(0, expires)).toISOString()}`, rule };
}

function refusal(principal: Principal, { why, rule }: Fault): NotAuthorised {
  const { tenant, role, name } = principal;
  return new NotAuthorised(`${role} ${name} of tenant ${tenant} is not authorised: ${why} (${rule})`, {
    rule,
    principal,
  });
}
