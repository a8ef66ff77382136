import type { Socket } from 'node:net';
import {
  type Attach,
  asDialError,
  DialError,
  type DialRequest,
  type Established,
  type PlaneEvents,
} from '@isthmus/tunnel';
import type { Allowance } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { LinkClient } from '../link/client.ts';

interface GatewaysOptions {
  readonly hubId: string;
  readonly events: PlaneEvents;
}

/** Who a gateway is that serves a hub. */
interface ServingGateway {
  readonly id: string;
  /** Names its process. */
  readonly instance: string;
  /** The tenants whose API servers it may reach, by its certificate. Undefined: all. */
  readonly tenants: ReadonlySet<string> | undefined;
  /** Of its control messages, with those of its other links. Unset: it is trusted. */
  readonly allowance?: Allowance;
}

/** A gateway's link. */
interface GatewayLink extends ServingGateway {
  readonly client: LinkClient;
  /** By tenant, when it did not reach the API server last. */
  readonly failedAt: Map<string, number>;
}

/**
 * The gateways that serve a hub: each connects to API servers for it, and has the half of the tunnel there, so the tunnel outlives the hub. What an
 * agent says chooses none of them.
 */
export class ApiServerGateways {
  readonly #options: GatewaysOptions;
  readonly #links = new Set<GatewayLink>();

  constructor(options: GatewaysOptions) {
    this.#options = options;
  }

  /** Takes a gateway's connection, on which this hub is the dialling side. */
  open(socket: Socket, gateway: ServingGateway): void {
    const { events } = this.#options;
    const { id, allowance } = gateway;
    const client = new LinkClient({ socket, peer: `gateway ${id}`, to: 'api-server', events, allowance });
    const link: GatewayLink = { ...gateway, client, failedAt: new Map() };
    this.#links.add(link);
    void client.closed.then(() => this.#links.delete(link));
  }

  /**
   * Connects a client at a gateway, then at another, then at this hub; at gateways that did not reach its API server lately only after that.
   * @param here connects it at this hub, within so many milliseconds while others are left: where hubs have no way to API servers, packets are dropped
   */
  async dial(
    request: DialRequest,
    here: (request: DialRequest, timeoutMs?: number) => Promise<Established>,
  ): Promise<Established> {
    const { tenant, signal, deadline } = request;
    const { good, avoided } = this.#serving(tenant);
    let refusal: DialError | undefined;
    for (const link of [...good, undefined, ...avoided]) {
      try {
        if (link) return await this.#through(link, request);
        return await here(request, avoided.length > 0 ? TRANSPORT.apiServerTryMs : undefined);
      } catch (thrown) {
        refusal = asDialError(thrown);
        // A tenant that is at its limit at one is not to ask all others.
        if (isLimit(refusal) || signal.aborted || performance.now() >= deadline) break;
      }
    }
    throw refusal;
  }

  /** Nothing of the client is sent anywhere before the answer. */
  async #through(link: GatewayLink, request: DialRequest): Promise<Established> {
    const { tenant, signal } = request;
    const deadline = Math.min(request.deadline, performance.now() + TRANSPORT.apiServerTryMs);
    try {
      const established = await link.client.dial({ ...request, deadline });
      link.failedAt.delete(tenant);
      return { ...established, ...this.#names(link) };
    } catch (thrown) {
      const error = asDialError(thrown);
      if (!signal.aborted && !isLimit(error)) failedNow(link, tenant);
      throw error;
    }
  }

  /** Passes an attach on to the gateway that has the tunnel's half. It judges whether the agent may go on with it. */
  readonly attach: Attach = async (request) => {
    const { tenant, process } = request;
    // A gateway that has connected again may still have its earlier link, which takes nothing or has fallen silent.
    const [link] = [...this.#links]
      .filter((each) => each.instance === process?.instance && each.client.usable && serves(each, tenant))
      .sort((a, b) => Number(a.client.silent) - Number(b.client.silent));
    if (!link) {
      const text = "the gateway that has the API server's end of this tunnel has no link to this hub";
      throw new DialError('connection_terminated', text, { retryable: true });
    }
    return { ...(await link.client.attach(request)), ...this.#names(link) };
  };

  close(): void {
    for (const { client } of this.#links) client.destroy(new Error('hub stops'));
  }

  #names({ id: agentId }: GatewayLink) {
    return { agentId, sessionId: '', hubId: this.#options.hubId };
  }

  /**
   * Those that may connect a tenant's client: the ones with the fewest first, and of those to avoid the one that failed longest ago. They are few: for
   * a client of an API server that is down, each hub would ask all gateways.
   */
  #serving(tenant: string): { readonly good: readonly GatewayLink[]; readonly avoided: readonly GatewayLink[] } {
    const now = performance.now();
    const most = TRANSPORT.apiServerGateways;
    const failed = ({ failedAt }: GatewayLink) => failedAt.get(tenant) ?? Number.NEGATIVE_INFINITY;
    const isAvoided = (link: GatewayLink) => link.client.silent || now - failed(link) < TRANSPORT.apiServerAvoidMs;
    const serving = [...this.#links].filter(
      (link) => link.client.usable && !link.client.leaves && serves(link, tenant),
    );
    const good = serving.filter((link) => !isAvoided(link)).sort((a, b) => a.client.open - b.client.open);
    const avoided = serving
      .filter(isAvoided)
      .sort((a, b) => Number(a.client.silent) - Number(b.client.silent) || failed(a) - failed(b));
    return { good: good.slice(0, most), avoided: avoided.slice(0, Math.max(0, most - good.length)) };
  }
}

/** Forgets what is so long ago that it says nothing any more. */
function failedNow({ failedAt }: GatewayLink, tenant: string): void {
  const now = performance.now();
  for (const [each, at] of failedAt) if (now - at >= TRANSPORT.apiServerAvoidMs) failedAt.delete(each);
  failedAt.set(tenant, now);
}

function isLimit({ code, retryable }: DialError): boolean {
  return code === 'connection_limit_reached' && !retryable;
}

function serves({ tenants }: ServingGateway, tenant: string): boolean {
  return tenants === undefined || tenants.has(tenant);
}
