import { policyOf } from '@isthmus/admission/policy';
import { endpointDial, type PolicyRules } from '@isthmus/transport';
import {
  type Dial,
  DialError,
  type DialLimiter,
  type DialPolicy,
  observed,
  refuseWhenScarce,
  type Stage,
} from '@isthmus/tunnel';
import type { AgentOptions } from './agent.ts';
import { AGENT } from './defaults.ts';

interface TenantPolicyOptions {
  /** Whether the hub said that rules follow. Dials wait for them: they may overtake rules on the wire. */
  readonly announced: boolean;
  /** Called if the announced rules did not come in time, or could not be used. Should end the link. */
  readonly missing: (error: Error) => void;
  /** Called for rules that cannot be used. */
  readonly refused: (error: Error) => void;
}

/** What the callers of the tenant of one link may dial, as its hub says. Rules that cannot be used leave the earlier ones in force. */
export class TenantPolicy implements Disposable {
  /** Gives dials the rules in force. */
  readonly permit: Stage = (next) => {
    const ruled: Dial = async (request) => {
      await this.#first.promise;
      if (this.#policy) request.policy = this.#policy;
      return next(request);
    };
    return (request) => (this.#ruled ? ruled(request) : next(request));
  };
  readonly #first = Promise.withResolvers<void>();
  /** Whether the hub has rules. Dials wait a moment in any case then: rules that came in the same read as they are not in force before. */
  #ruled: boolean;
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #refused: (error: Error) => void;
  #policy: DialPolicy | undefined;

  constructor({ announced, missing, refused }: TenantPolicyOptions) {
    this.#refused = refused;
    const late = () => missing(new Error(`it sent no dial rules that can be used within ${AGENT.rulesMs / 1000} s`));
    this.#ruled = announced;
    if (announced) this.#timer = setTimeout(late, AGENT.rulesMs);
    this.#first.promise.catch(() => {});
  }

  take(rules: PolicyRules): void {
    try {
      this.#policy = policyOf(rules);
    } catch (error) {
      this.#refused(error as Error);
      return;
    }
    clearTimeout(this.#timer);
    this.#ruled = true;
    this.#first.resolve();
  }

  /** Fails the dials that wait. Call when the link has ended. */
  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#first.reject(new DialError('connection_terminated', 'the link ended before its dial rules came'));
  }
}

interface AgentStagesOptions
  extends Pick<AgentOptions, 'agentId' | 'observation' | 'prohibited' | 'lists' | 'network'> {
  /** Of all connections together. */
  readonly limiter: Pick<DialLimiter, 'limit'>;
  /** What the connection's hub says that callers may dial. Unset for a server that can say nothing. */
  readonly rules: Pick<TenantPolicy, 'permit'> | undefined;
}

/** A dial's way through an agent, from one of its connections to the destination's socket. The test beside it says why in this order. */
export function agentStages(options: AgentStagesOptions): readonly Stage[] {
  const { agentId, observation, limiter, rules, prohibited, lists, network } = options;
  const observe: Stage = (next) => observed('agent', next, observation);
  const limit: Stage = (next) => limiter.limit(next);
  const permit = rules?.permit;
  const own = { ...(prohibited && { prohibited }), ...(lists && { lists }) };
  const connect: Stage = () => endpointDial({ agentId, ...own, ...observation });
  return [observe, limit, ...(permit ? [permit] : []), refuseWhenScarce, ...(network ? [network] : []), connect];
}
