import { policyOf } from '@isthmus/admission/policy';
import { endpointDial, type PolicyRules } from '@isthmus/transport';
import {
  type Dial,
  DialError,
  type DialLimiter,
  type DialPolicy,
  pipeline,
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
  readonly permit: Stage = {
    name: 'permit',
    enter: (request, waiting) => {
      if (!this.#ruled) return undefined;
      const goOn = () => {
        if (this.#policy) request.policy = this.#policy;
        waiting.goOn();
      };
      void this.#first.promise.then(goOn, (error) => waiting.fail(error));
      return 'waits';
    },
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

/** What a dial passes in an agent, from one of its connections on. The test beside it says why in this order. */
export function agentStages({
  agentId,
  limiter,
  rules,
}: Pick<AgentStagesOptions, 'agentId' | 'limiter' | 'rules'>): readonly Stage[] {
  return [limiter.limit, ...(rules ? [rules.permit] : []), refuseWhenScarce(`agent ${agentId}`)];
}

/** An agent's Dial: what passes all stages gets the destination's socket. */
export function agentDial(options: AgentStagesOptions): Dial {
  const { agentId, observation, prohibited, lists, network } = options;
  const own = { ...(prohibited && { prohibited }), ...(lists && { lists }) };
  const connect = endpointDial({ agentId, ...own, ...observation });
  return pipeline({ role: 'agent', stages: agentStages(options), open: network?.(connect) ?? connect, observation });
}
