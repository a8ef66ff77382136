import { type PolicyRule, policyOf } from '@isthmus/admission/policy';
import { type Tenancy, tenantPorts } from '@isthmus/plane';
import { machineAddresses } from '@isthmus/runtime';
import { endpointDial } from '@isthmus/transport';
import {
  type AttemptRecord,
  asDialError,
  callerName,
  type Destination,
  DIRECT,
  type Dial,
  type DialRequest,
  enterSpan,
  type Observation,
  type Prohibited,
  type Prohibition,
  prohibitedBy,
} from '@isthmus/tunnel';

export interface DirectOptions {
  /** Of `--direct-destinations`. A tenant's file chooses among what they list. */
  readonly rules: readonly PolicyRule[];
  /** What the flag names among the addresses that no gateway dials. */
  readonly lifted: readonly Prohibition[];
  /** Ports on which this program listens by its flags. */
  readonly ports: readonly number[];
  /** Default: those of this machine. */
  readonly ownAddresses?: () => readonly string[];
}

interface DirectParts extends DirectOptions {
  readonly tenancy?: Pick<Tenancy, 'tenants' | 'changed'> | undefined;
  readonly observation: Observation;
}

/** What records say of an attempt without an agent. */
const BY_THE_GATEWAY = { kind: 'direct', agentId: DIRECT, sessionId: '', hubId: '' } as const;

/** Destinations that a gateway dials itself: what its flag lists, of a tenant with `dial.direct` only what that lists too. */
export class DirectDials {
  /** Opens the socket here if a rule says so. After DNS, each address must be one that the tenant's rules allow, and gateways may dial. */
  readonly direct = (next: Dial): Dial => {
    const { observation } = this.#parts;
    const { tracer } = observation;
    const prohibited: Prohibited = (address, port) => this.#prohibited(address, port);
    const open = endpointDial({ agentId: DIRECT, prohibited, liftedBy: '--direct-destinations', ...observation });
    const here = async (request: DialRequest) => {
      const policy = this.#tenant(request.tenant)?.policy;
      const start = performance.now();
      const attempt: AttemptRecord = { ...BY_THE_GATEWAY, start, outcome: 'running' };
      request.log?.attempts.push(attempt);
      const span = tracer?.attempt(request, attempt, 1);
      const asked = { ...request, ...(policy && { policy }) };
      if (span) enterSpan(asked, span);
      try {
        const established = await open(asked);
        attempt.outcome = 'established';
        return established;
      } catch (thrown) {
        attempt.outcome = request.signal.aborted ? 'overtaken' : 'failed';
        if (!request.signal.aborted) attempt.error = asDialError(thrown);
        throw thrown;
      } finally {
        attempt.ms = performance.now() - start;
        span?.end(attempt);
      }
    };
    return (request) => {
      const { tenant, destination, agent } = request;
      const toAgent = agent !== undefined || this.rule(tenant, destination, callerName(request)) === undefined;
      return toAgent ? next(request) : here(request);
    };
  };
  readonly #parts: DirectParts;
  readonly #flag: ReturnType<typeof policyOf>;
  /** The ports of `ports` and of tenants' files. Unset after a change of these. */
  #ownPorts: readonly number[] | undefined;

  constructor(parts: DirectParts) {
    this.#parts = parts;
    this.#flag = policyOf({ allow: parts.rules });
    parts.tenancy?.changed(() => {
      this.#ownPorts = undefined;
    });
  }

  /** Returns the rule by which a dial is direct; undefined if it goes to an agent. A name is compared as it is, and not resolved. */
  rule(tenant: string, destination: Destination, caller: string): string | undefined {
    const byFlag = this.#flag.verdict(destination, caller, []);
    if (!byFlag.allowed) return undefined;
    const direct = this.#tenant(tenant)?.direct;
    if (!direct) return `--direct-destinations=${byFlag.rule}`;
    const byFile = direct.verdict(destination, caller, []);
    return byFile.allowed ? `dial.${byFile.rule}` : undefined;
  }

  #tenant(name: string) {
    return this.#parts.tenancy?.tenants.get(name);
  }

  #prohibited(address: string, port: number): Prohibition | undefined {
    const { lifted, ports, tenancy, ownAddresses = machineAddresses } = this.#parts;
    this.#ownPorts ??= [...ports, ...(tenancy ? tenantPorts(tenancy) : [])];
    const ownPorts = this.#ownPorts;
    return prohibitedBy({ ownPorts, ownAddresses, lifted })(address, port);
  }
}
