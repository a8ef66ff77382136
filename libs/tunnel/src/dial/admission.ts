import type { Dial, DialRequest } from './dial.ts';
import { DialError } from './errors.ts';

/**
 * How many dials of one tenant may be pending in one process. Each dial has a deadline, so a tenant with more has lost its
 * destinations or agents. Refusing its callers is better than making them wait (upstream was seen with 27,700 pending dials).
 */
const MAX_PENDING_DIALS = 2000;

/**
 * The one place in a program that admits dials: a gateway's, before it chooses a session, and an agent's, before it dials the
 * destination. A hub has none, because both ends of its dials have one. Policies and quotas belong here.
 */
export class Admission {
  readonly dial: Dial = (request) => this.#admit(request);
  readonly #inner: Dial;
  readonly #idle: (() => void)[] = [];
  readonly #byTenant = new Map<string, number>();
  #pending = 0;
  #closed = false;

  constructor(dial: Dial) {
    this.#inner = dial;
  }

  /** Dials without an answer yet. */
  get pending(): number {
    return this.#pending;
  }

  /** Refuses new dials. Resolves once every pending dial has its answer. */
  close(): Promise<void> {
    this.#closed = true;
    return this.#pending === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve));
  }

  get closed(): boolean {
    return this.#closed;
  }

  async #admit(request: DialRequest) {
    if (this.#closed) throw shuttingDown();
    const { tenant } = request;
    if ((this.#byTenant.get(tenant) ?? 0) >= MAX_PENDING_DIALS) {
      const text = `tenant ${tenant} has ${MAX_PENDING_DIALS} dials without an answer already`;
      throw new DialError('connection_limit_reached', text);
    }
    this.#count(tenant, 1);
    try {
      return await this.#inner(request);
    } finally {
      this.#count(tenant, -1);
      if (this.#pending === 0) for (const resolve of this.#idle.splice(0)) resolve();
    }
  }

  #count(tenant: string, by: 1 | -1): void {
    const count = (this.#byTenant.get(tenant) ?? 0) + by;
    if (count > 0) this.#byTenant.set(tenant, count);
    else this.#byTenant.delete(tenant);
    this.#pending += by;
  }
}

/** `retryAfter` is 0 because another process accepts the dial at once. */
function shuttingDown(): DialError {
  return new DialError('destination_unavailable', 'proxy is shutting down', { retryable: true, retryAfter: 0 });
}
