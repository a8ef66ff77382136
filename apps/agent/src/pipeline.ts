import { endpointDial } from '@isthmus/transport';
import {
  type DialLimiter,
  type DialPolicy,
  type Observation,
  observed,
  type Prohibited,
  refuseWhenScarce,
  type Stage,
} from '@isthmus/tunnel';
import type { TenantPolicy } from './tenant-policy.ts';

export interface AgentStagesOptions {
  readonly agentId: string;
  readonly observation: Observation;
  /** Of all connections together. */
  readonly limiter: Pick<DialLimiter, 'limit'>;
  /** What the connection's hub says that callers may dial. Unset for a server that can say nothing. */
  readonly rules: Pick<TenantPolicy, 'permit'> | undefined;
  /** Decides which addresses are not dialled. */
  readonly prohibited?: Prohibited;
  /** The agent's own lists of what it dials. */
  readonly policy?: DialPolicy;
  /** See `AgentOptions`. */
  readonly network?: Stage;
}

/** A dial's way through an agent, from one of its connections to the destination's socket. The test beside it says why in this order. */
export function agentStages(options: AgentStagesOptions): readonly Stage[] {
  const { agentId, observation, limiter, rules, prohibited, policy, network } = options;
  const observe: Stage = (next) => observed('agent', next, observation);
  const limit: Stage = (next) => limiter.limit(next);
  const permit = rules?.permit;
  const own = { ...(prohibited && { prohibited }), ...(policy && { policy }) };
  const connect: Stage = () => endpointDial({ agentId, ...own, ...observation });
  return [observe, limit, ...(permit ? [permit] : []), refuseWhenScarce, ...(network ? [network] : []), connect];
}
