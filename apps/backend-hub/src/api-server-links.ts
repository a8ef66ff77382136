import type { Socket } from 'node:net';
import { countIn, onceClosed, remoteOf } from '@isthmus/runtime';
import {
  type AgentHello,
  AgentLimitError,
  type ApiServerGateways,
  ApiServerLinks,
  type ApiServers,
  localOf,
  parseIdentifiers,
  type Reach,
} from '@isthmus/transport';
import { agentKey, type Caller, type Observation, principalText } from '@isthmus/tunnel';
import { type AdmittedAgent, type AgentAdmission, standing } from './agent-admission.ts';

interface AgentLinksOptions {
  readonly hubId: string;
  readonly admission: AgentAdmission;
  readonly apiServers: ApiServers;
  readonly gateways: ApiServerGateways;
  readonly observation: Observation;
}

/** Agents' own links to a hub, by which their clients reach the API server of their tenant. Each agent proves who it is as for a session. */
export class AgentLinks {
  readonly #options: AgentLinksOptions;
  readonly #links: ApiServerLinks;
  /** Links of each agent and of each tenant. */
  readonly #open = new Map<string, number>();

  constructor(options: AgentLinksOptions) {
    this.#options = options;
    this.#links = new ApiServerLinks({ ...options, events: options.observation.events });
  }

  async admit(hello: AgentHello, socket: Socket): Promise<AdmittedAgent & Reach> {
    const agent = await this.#options.admission.apiServerLink(hello, socket);
    this.#checkRoom(agent, hello);
    return { ...agent, ...parseIdentifiers('') };
  }

  /** @throws AgentLimitError if others have come meanwhile */
  open(socket: Socket, { agentId }: AgentHello, agent: AdmittedAgent): void {
    const { tenant, grant } = agent;
    this.#checkRoom(agent, { agentId });
    for (const key of [agentKey({ tenant, agentId }), tenant]) {
      countIn(this.#open, key, 1);
      onceClosed(socket, () => countIn(this.#open, key, -1));
    }
    const remote = remoteOf(socket);
    const caller: Caller = {
      via: 'api-server',
      identity: grant ? principalText(grant.principal) : `agent ${agentId}`,
      remote,
      local: localOf(socket),
      ...(grant && { principal: grant.principal }),
    };
    const taken = () => link.send({ type: 'renewed' });
    const link = this.#links.open(socket, {
      ...{ tenant, agentId, caller },
      receive: (message) => {
        if (message.type === 'credential') void stands?.renew(message.token, taken);
      },
    });
    const claim = { agentId, ...parseIdentifiers('') };
    const stands = standing(agent, { claim, remote, connection: link, events: this.#options.observation.events });
  }

  /** Takes no more connections of agents' clients. */
  leave(): void {
    this.#links.leave();
  }

  close(): void {
    this.#links.close();
  }

  /** An agent may have as many of these links as it may have sessions. */
  #checkRoom(agent: AdmittedAgent, { agentId }: Pick<AgentHello, 'agentId'>): void {
    const { tenant } = agent;
    const { ofAgent, ofTenant } = this.#options.admission.mostSessions(agent);
    const [own, all] = [this.#open.get(agentKey({ tenant, agentId })) ?? 0, this.#open.get(tenant) ?? 0];
    if (own < ofAgent && all < ofTenant) return;
    const whose = own < ofAgent ? `tenant ${tenant}` : `agent ${agentId}`;
    const limit = own < ofAgent ? 'sessions' : 'sessionsPerAgent';
    const text = `${whose} has ${own < ofAgent ? all : own} links to its API server here already, as many as it may have sessions`;
    throw new AgentLimitError(`limits.${limit}`, text);
  }
}
