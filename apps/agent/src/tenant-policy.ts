import { type Policy, policyOf } from '@isthmus/admission/policy';
import { deferred } from '@isthmus/runtime';
import type { PolicyRules } from '@isthmus/transport';
import { DialError, type Stage } from '@isthmus/tunnel';

/** How long an agent waits for the rules that a hub announced, in milliseconds. They are on their way when it begins to wait. */
const RULES_TIMEOUT = 10_000;

export interface TenantPolicyOptions {
  /** Whether the hub said that rules follow. Dials wait for them: they may overtake rules on the wire. */
  readonly announced: boolean;
  /** Called if the announced rules did not come in time, or could not be used. Should end the link. */
  readonly missing: (error: Error) => void;
  /** Milliseconds; for tests. */
  readonly timeout?: number;
}

/** What the callers of the tenant of one link may dial, as its hub says. Rules that cannot be used leave the earlier ones in force. */
export class TenantPolicy implements Disposable {
  /** Gives dials the rules in force. */
  readonly permit: Stage = (next) => async (request) => {
    await this.#first.promise;
    if (this.#policy) request.policy = this.#policy;
    return next(request);
  };
  readonly #first = deferred<void>();
  readonly #timer: NodeJS.Timeout | undefined;
  #policy: Policy | undefined;

  constructor({ announced, missing, timeout = RULES_TIMEOUT }: TenantPolicyOptions) {
    const late = () => missing(new Error(`it sent no dial rules that can be used within ${timeout / 1000} s`));
    if (announced) this.#timer = setTimeout(late, timeout);
    else this.#first.resolve();
    this.#first.promise.catch(() => {});
  }

  /** @throws Error for rules that cannot be used */
  take(rules: PolicyRules): void {
    this.#policy = policyOf(rules);
    clearTimeout(this.#timer);
    this.#first.resolve();
  }

  /** Fails the dials that wait. Call when the link has ended. */
  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#first.reject(new DialError('connection_terminated', 'the link ended before its dial rules came'));
  }
}
