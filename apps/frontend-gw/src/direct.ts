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

/** Destinations that a gateway dials itself: what its flag lists, of a tenant with `dial.direct` only what that lists too. */
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
    const { lifted, ownAddresses = addressesHere } = this.#parts;
    this.#ownPorts ??= this.#portsNow();
    const ownPorts = this.#ownPorts;
    return prohibitedBy({ ownPorts, ownAddresses, lifted })(address, port);
  }

  #portsNow(): number[] {
    const { ports, tenancy } = this.#parts;
    const files = [...(tenancy?.tenants.all ?? [])].map(({ file }) => file);
    const doors = files.flatMap(({ agents = [], callers = [] }) => [...agents, ...callers]);
    return [...ports, ...doors.flatMap((door) => door.port ?? [])];
  }
}

function addressesHere(): string[] {
  return Object.values(networkInterfaces()).flatMap((all) => all?.map(({ address }) => address) ?? []);
}
