import { isIP } from 'node:net';
import {
  callerName,
  DialError,
  type DialPolicy,
  type DialRequest,
  formatDestination,
  NotAuthorised,
  type Prohibited,
} from '@isthmus/tunnel';
import { targetOf } from './endpoint-steps.ts';

/** What an agent does not dial, whatever a plane asks of it. */
export interface OwnRules {
  /** Decides which addresses are not dialled. Default: none. */
  readonly prohibited?: Prohibited;
  /** The agent's own lists of what it dials. Its rules have the names of their entries. Default: everything. */
  readonly policy?: DialPolicy;
}

/** Returns why an address is not dialled, or undefined. Without an address: why the name is not, before it is resolved. */
export type Refusal = (address?: string) => DialError | undefined;

/**
 * Checks addresses against the agent's own rules, and then against its tenant's. The address is the one that the agent would connect
 * to, so no spelling and no resolver's answer can bypass a rule. Each refusal is final: other agents have the same rules, and
 * strategies decide which agent may dial what, not retries.
 */
export function refusalOf(request: DialRequest, { prohibited = () => undefined, policy }: OwnRules): Refusal {
  const { destination, tenant } = request;
  const refused = (why: string, rule: string) => {
    const target = formatDestination(destination);
    const text = `dial tcp ${target}: ${why}`;
    const cause = new NotAuthorised(text, { rule, destination: target, tenant });
    return new DialError('destination_ip_prohibited', text, { cause });
  };
  return (address) => {
    const rule = address === undefined ? undefined : prohibited(address, destination.port);
    if (rule) return refused(`agents do not dial ${address} (${rule}); --allow-destinations=${rule} lifts this`, rule);
    const host = address ?? destination.host;
    const own = policy && refusingRule(request, policy, address);
    if (own === '')
      return refused(`this agent does not dial ${host}: it is not in its --allow-destinations`, '--allow-destinations');
    if (own)
      return refused(`this agent does not dial ${host}: --deny-destinations=${own}`, `--deny-destinations=${own}`);
    const tenants = request.policy && refusingRule(request, request.policy, address);
    if (tenants === undefined) return undefined;
    const name = tenants || 'allow';
    return refused(`the policy of tenant ${tenant} refuses ${host} (rule ${name})`, `dial.${name}`);
  };
}

/** Returns the rule that refuses a dial; empty if none allows it, undefined if it is allowed. */
function refusingRule(request: DialRequest, policy: DialPolicy, address: string | undefined): string | undefined {
  const { port } = request.destination;
  const named = isIP(request.destination.host) === 0;
  const host = targetOf(request.destination);
  const { allowed, rule } = policy.verdict(
    { host, port },
    callerName(request),
    named && address !== undefined ? [address] : [],
  );
  // What no rule allows by its name may be allowed by its addresses.
  return allowed || (address === undefined && rule === '') ? undefined : rule;
}
