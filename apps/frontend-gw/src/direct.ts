import { networkInterfaces } from 'node:os';
import { type PolicyRule, policyOf } from '@isthmus/admission/policy';
import type { Tenancy } from '@isthmus/plane';
import { endpointDial } from '@isthmus/transport';
import {
  callerName,
  type Destination,
  DIRECT,
  type Observation,
  type Prohibited,
  type Prohibition,
  prohibitedBy,
  type Stage,
} from '@isthmus/tunnel';

export interface DirectOptions {
  /** Of `--direct-destinations`, for all tenants. */
  readonly rules: readonly PolicyRule[];
  /** What the flag names among the addresses that no gateway dials. */
  readonly lifted: readonly Prohibition[];
  /** Ports on which this program listens by its flags. */
  readonly ports: readonly number[];
  /** Default: those of this machine. */
  readonly ownAddresses?: () => readonly string[];
}

interface DirectParts extends DirectOptions {
  readonly tenancy?: Pick<Tenancy, 'tenants'> | undefined;
  readonly observation: Observation;
}

/** Destinations that a gateway dials itself, by its flag and by tenants' files. */
export class DirectDials {
  /** Opens the socket here if a rule says so. After DNS, each address must be one that the tenant's rules allow, and gateways may dial. */
  readonly direct: Stage = (next) => {
    const { observation } = this.#parts;
    const prohibited: Prohibited = (address, port) => this.#prohibited(address, port);
    const open = endpointDial({ agentId: DIRECT, prohibited, liftedBy: '--direct-destinations', ...observation });
    return (request) => {
      const { tenant, destination, agent } = request;
      if (agent !== undefined || this.rule(tenant, destination, callerName(request)) === undefined)
        return next(request);
      const policy = this.#tenant(tenant)?.policy;
      if (policy) request.policy = policy;
      return open(request);
    };
  };
  readonly #parts: DirectParts;
  readonly #flag: ReturnType<typeof policyOf>;

  constructor(parts: DirectParts) {
    this.#parts = parts;
    this.#flag = policyOf({ allow: parts.rules });
  }

  /** Returns the rule by which a dial is direct; undefined if it goes to an agent. A name is compared as it is, and not resolved. */
  rule(tenant: string, destination: Destination, caller: string): string | undefined {
    const byFlag = this.#flag.verdict(destination, caller, []);
    if (byFlag.allowed) return `--direct-destinations=${byFlag.rule}`;
    const byFile = this.#tenant(tenant)?.direct.verdict(destination, caller, []);
    return byFile?.allowed ? `dial.${byFile.rule}` : undefined;
  }

  #tenant(name: string) {
    return this.#parts.tenancy?.tenants.get(name);
  }

  #prohibited(address: string, port: number): Prohibition | undefined {
    const { ports, lifted, tenancy, ownAddresses = addressesHere } = this.#parts;
    const files = [...(tenancy?.tenants.all ?? [])].map(({ file }) => file);
    const doors = files.flatMap(({ agents = [], callers = [] }) => [...agents, ...callers]);
    const ownPorts = [...ports, ...doors.flatMap((door) => door.port ?? [])];
    return prohibitedBy({ ownPorts, ownAddresses, lifted })(address, port);
  }
}

function addressesHere(): string[] {
  return Object.values(networkInterfaces()).flatMap((all) => all?.map(({ address }) => address) ?? []);
}
