import type { Socket } from 'node:net';
import { LONGEST_TIMER, SharedBudget } from '@isthmus/runtime';
import {
  AgentTunnels,
  type Caller,
  type Destination,
  DialError,
  formatDestination,
  type PlaneEvents,
} from '@isthmus/tunnel';
import { TRANSPORT } from '../defaults.ts';
import { Allowances, type ControlMessage } from '../link/control.ts';
import { CALLER_LIMITS } from '../link/hold.ts';
import { LinkServer } from '../link/server.ts';
import type { ApiServers } from './api-servers.ts';

/** What agents ask for on these links. It stands for the API server of their tenant: nothing that an agent says chooses where it is. */
export const API_SERVER: Destination = { host: 'api-server', port: 443 };

interface ApiServerLinksOptions {
  readonly hubId: string;
  readonly apiServers: ApiServers;
  readonly events: PlaneEvents;
}

/** An agent that has proven who it is. */
interface LinkedAgent {
  readonly tenant: string;
  readonly agentId: string;
  /** For the API server's audit, and this plane's. */
  readonly caller: Caller;
  readonly receive: (message: ControlMessage) => void;
}

/**
 * Agents' own links to a hub: their clients' connections come as dials, and go to the API server of the agent's tenant. The hub has the half of each
 * tunnel beside the API server, so a connection outlives the link that carries it, and ends with this process.
 */
export class ApiServerLinks {
  readonly #options: ApiServerLinksOptions;
  readonly #links = new Set<LinkServer>();
  readonly #allowances = new Allowances();
  readonly #halves = new AgentTunnels({
    timeoutMs: TRANSPORT.apiServerAgentBackMs,
    budget: new SharedBudget(TRANSPORT.apiServerKeptBytes),
  });
  #leaving = false;

  constructor(options: ApiServerLinksOptions) {
    this.#options = options;
  }

  /** Serves an agent on its connection. */
  open(socket: Socket, { tenant, agentId, caller, receive }: LinkedAgent): LinkServer {
    const { hubId, apiServers, events } = this.#options;
    const halves = this.#halves;
    const link = new LinkServer({
      ...{ socket, peer: `agent ${agentId}`, role: 'api-server', hubId, events, receive },
      dial: (request) => apiServers.dial(request, socket),
      begun: apiServers.runs,
      halfClosedMs: LONGEST_TIMER,
      tunnels: {
        // The destination of a dial is where it went by now. An attach names what was asked for.
        begin: (dial, answer) => halves.begin({ ...dial, destination: API_SERVER }, answer),
        attach: (asked, answer) => halves.attach(asked, answer),
        // An agent may say that it is any process: its word ends no tunnels.
        linked() {},
        unlinked() {},
        hungUp() {},
      },
      enter: (request) => {
        const { host, port } = request.destination;
        if (host !== API_SERVER.host || port !== API_SERVER.port) {
          const text = `agents reach the API server of their tenant by this link, and not ${formatDestination(request.destination)}`;
          throw new DialError('http_request_denied', text);
        }
        const deadline = Math.min(request.deadline, performance.now() + TRANSPORT.apiServerConnectMs);
        return { ...request, tenant, caller, callerName: undefined, trial: undefined, deadline };
      },
      limits: CALLER_LIMITS,
      allowance: this.#allowances.of(tenant),
    });
    this.#links.add(link);
    void link.closed.then(() => this.#links.delete(link));
    // It came while the hub began to leave.
    if (this.#leaving) link.close();
    return link;
  }

  /** Takes no more connections. Those that run may end. */
  leave(): void {
    this.#leaving = true;
    for (const link of this.#links) link.close();
  }

  /** Call once their tunnels have been cut. */
  close(): void {
    this.leave();
    for (const link of this.#links) link.destroy(new Error('hub stops'));
  }
}
