import type { Socket } from 'node:net';
import { LONGEST_TIMER, SharedBudget } from '@isthmus/runtime';
import {
  AgentTunnels,
  type Attach,
  attachesInTurns,
  type Caller,
  type Destination,
  type Dial,
  DialError,
  type DialRequest,
  formatDestination,
  inTurns,
  type PlaneEvents,
} from '@isthmus/tunnel';
import { TRANSPORT } from '../defaults.ts';
import { Allowances, type ControlMessage } from '../link/control.ts';
import { CALLER_LIMITS } from '../link/hold.ts';
import { LinkServer, type LinkServerOptions } from '../link/server.ts';
import { readersOf } from '../socket-end.ts';
import type { ApiServers } from './api-servers.ts';
import type { ApiServerGateways } from './gateways.ts';

/** What agents ask for on these links. It stands for the API server of their tenant: nothing that an agent says chooses where it is. */
export const API_SERVER: Destination = { host: 'api-server', port: 443 };

interface ApiServerLinksOptions {
  /** Empty in a gateway. */
  readonly hubId: string;
  readonly apiServers: ApiServers;
  /** Those that a hub may have connect to API servers. Unset: it always does so itself. */
  readonly gateways?: Pick<ApiServerGateways, 'dial' | 'attach'> | undefined;
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
 * Links on which connections of agents' clients come as dials: agents' own links to a hub, and those of hubs to a gateway. They go to the API server of
 * the agent's tenant. The half of each tunnel beside the API server is at a gateway, so a connection outlives its hub; where no gateway connects, it is at
 * the hub. It outlives the links that carry it, and ends with the process that has this half.
 */
export class ApiServerLinks {
  readonly #options: ApiServerLinksOptions;
  readonly #links = new Set<LinkServer>();
  readonly #dial: Dial;
  readonly #attach: Attach | undefined;
  readonly #allowances = new Allowances();
  readonly #halves = new AgentTunnels({
    timeoutMs: TRANSPORT.apiServerAgentBackMs,
    budget: new SharedBudget(TRANSPORT.apiServerKeptBytes),
  });
  #leaving = false;
  #closing = false;

  constructor(options: ApiServerLinksOptions) {
    this.#options = options;
    const { apiServers, gateways } = options;
    const { connect } = apiServers;
    // To connect takes turns of its own.
    const dial: Dial = gateways ? inTurns((request) => gateways.dial(request, connect)) : connect;
    this.#dial = (request) => apiServers.enter(request, dial);
    this.#attach = gateways && attachesInTurns(gateways.attach);
  }

  /** Names this process to those whose tunnels have a half here. */
  get instance(): string {
    return this.#halves.instance;
  }

  /** Serves an agent on its connection to a hub. */
  open(socket: Socket, { tenant, agentId, caller, receive }: LinkedAgent): LinkServer {
    const { hubId } = this.#options;
    return this.#serve(socket, `agent ${agentId}`, {
      ...{ hubId, receive },
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
      readers: readersOf(tenant),
    });
  }

  /** Serves a hub, at a gateway. It says whose clients they are, as it says to agents who dials. */
  serve(socket: Socket, hubId: string): LinkServer {
    return this.#serve(socket, `hub ${hubId}`, {
      enter: (request) => ({ ...request, destination: API_SERVER }),
    });
  }

  #serve(
    socket: Socket,
    peer: string,
    options: Pick<LinkServerOptions, 'hubId' | 'receive' | 'enter' | 'limits' | 'allowance' | 'readers'>,
  ): LinkServer {
    const { apiServers, events } = this.#options;
    const halves = this.#halves;
    const link = new LinkServer({
      ...{ socket, peer, role: 'api-server', events, dial: this.#dial, attach: this.#attach },
      begun: (tunnel) => {
        if (tunnel.role === 'api-server') apiServers.runs(tunnel);
        else apiServers.passes(tunnel);
      },
      halfClosedMs: LONGEST_TIMER,
      tunnels: {
        instance: halves.instance,
        // The destination of a dial is where it went by now. An attach names what was asked for.
        begin: (dial, answer) => halves.begin({ ...ofAgent(dial), destination: API_SERVER }, answer),
        attach: (asked, answer) => halves.attach(ofAgent(asked), answer),
        // An agent may say that it is any process: its word ends no tunnels.
        linked() {},
        unlinked() {},
        hungUp() {},
      },
      ...options,
    });
    this.#links.add(link);
    void link.closed.then(() => this.#links.delete(link));
    if (this.#leaving) link.drain();
    // It came while the hub began to leave.
    if (this.#closing) link.close();
    return link;
  }

  /** Asks the dialling sides to choose another. Still takes what comes: a gateway's tunnels go on through other hubs until its end. */
  drain(): void {
    this.#leaving = true;
    for (const link of this.#links) link.drain();
  }

  /** Takes no more connections. Those that run go on through other hubs, or may end. */
  leave(): void {
    this.#closing = true;
    this.drain();
    for (const link of this.#links) link.close();
  }

  /** Call once their tunnels have been cut. */
  close(): void {
    this.leave();
    for (const link of this.#links) link.destroy(new Error('the process stops'));
  }
}

/** Names what is asked by its agent, which is no caller: only the agent that began a tunnel goes on with it. */
function ofAgent<Asked extends Pick<DialRequest, 'caller'>>(asked: Asked): Asked & Pick<DialRequest, 'callerName'> {
  return { ...asked, caller: undefined, callerName: asked.caller?.identity };
}
